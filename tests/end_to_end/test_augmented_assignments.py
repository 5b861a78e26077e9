"""Augmented assignments (``a += b``), which change the array as NumPy's do, and the memory that arrays share."""

import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, MESH, X, check_call

import shardcall as sc

ROW = ARRAYS["ROW"]


@pytest.fixture
def put(client):
    return lambda x: client.put(x, mesh=MESH, spec=sc.P("a", "b"))


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_integers_keep_their_type(strict_client, dtype):
    for statement in ("t &= 5", "t |= 8", "t ^= t", "t <<= 1", "t >>= 1", "t += np.int8(3)"):
        check_call(strict_client, f"t = alias = put(K.astype('{dtype}')); {statement}")


@pytest.mark.parametrize(
    ("statement", "dtype", "error_class", "message"),
    [
        (
            "x /= 2",
            "int64",
            TypeError,
            "divide in place makes float64, and the array that it changes is of int64; write a = a / b",
        ),
        ("x += 0.5", "int64", TypeError, "float64"),
        ("x += 1j", "float64", TypeError, "complex128"),
        ("x += 1", "bool", TypeError, "int64"),
        ("x -= x", "bool", TypeError, "bool"),
        ("x += 300", "uint8", OverflowError, "300"),
        ("x += np.int8(3)", "uint8", TypeError, "makes int16, and the array that it changes is of uint8"),
        ("x += np.ones((2, 13, 6))", "float64", ValueError, r"shape \(2, 13, 6\).* of shape \(13, 6\)"),
        ("x @= np.ones((6, 2))", "float64", ValueError, r"shape \(13, 2\)"),
        ("x += np.ones(5)", "float64", ValueError, r"\(5,\)"),
        ("del x[0]", "int64", ValueError, "cannot delete array elements"),
        ("x[(None,) * 63]", "int64", IndexError, r"within \[0, 32\], indexing result would have 65"),
        ("np.pad(x, 2, constant_values=None)", "int64", TypeError, "constant_values is None"),
        ("np.pad(x, 2, 'edge', constant_values=None)", "int64", ValueError, "takes no constant_values"),
        ("np.pad(x, 2, 'linear_ramp', end_values=None)", "int64", TypeError, "end_values is None"),
    ],
)
def test_what_numpy_refuses_is_refused_and_changes_nothing(put, statement, dtype, error_class, message):
    x = ARRAYS["K"].astype(dtype)
    with pytest.raises(error_class):
        exec(statement, {"np": np, "x": x.copy()})
    h = put(x)
    with pytest.raises(error_class, match=message):
        exec(statement, {"np": np, "x": h})
    np.testing.assert_array_equal(h.get(), x)


def test_the_layout_stays(client, put):
    h = put(X)
    h *= client.put(X, mesh=MESH, spec=sc.P("b"))
    assert h.spec == sc.P("a", "b")
    product = alias = put(X)
    product @= np.diag(ARRAYS["ROW"])
    np.testing.assert_allclose(alias.get(), X @ np.diag(ARRAYS["ROW"]))


def test_results_of_calls(client):
    for keep in (False, True):
        result = kept = client.diff(X, axis=0, keep=keep)
        result += 1
        assert isinstance(result, sc.Result)
        np.testing.assert_array_equal(kept.get(), np.diff(X, axis=0) + 1)


def test_bucketed_arrays(client):
    b = kept = client.bucket(X)
    b += 1
    np.testing.assert_array_equal(kept.get(), X + 1)


def test_attributes_are_not_set(put):
    h = put(X)
    for name in ("dtype", "strides", "base", "label"):
        with pytest.raises(AttributeError, match=f"'{name}' of a RemoteArray cannot be set"):
            setattr(h, name, 0)


def test_numbers_are_scalars_where_numpys_are(client):
    h = client.put(X)
    numbers = [h.sum(), np.max(h), h[1, 2], h.mean() + 1, np.percentile(h, 50), np.median(h)]
    arrays = [client.put(np.array(3.0)), client.xp.zeros(()), h[:1, :1].reshape(()).copy(), h[0, 1, ...].copy()]
    for value, is_scalar in [*((n, True) for n in numbers), *((a, False) for a in arrays)]:
        after = value
        after += 1
        assert (after is value) != is_scalar
        assert float(after) - float(value) == pytest.approx(float(is_scalar))

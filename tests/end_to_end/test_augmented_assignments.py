"""Augmented assignments (``a += b``), which change the array as NumPy's do, and the memory that arrays share."""

import copy

import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, MESH, X, calls_of, check_call

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
        ("x /= 2", "int64", TypeError, "divide in place makes float64, and the array that it changes is of int64"),
        ("x += 0.5", "int64", TypeError, "float64"),
        ("x += 1j", "float64", TypeError, "complex128"),
        ("x += 1", "bool", TypeError, "int64"),
        ("x -= x", "bool", TypeError, "bool"),
        ("x += 300", "uint8", OverflowError, "300"),
        ("x += np.int8(3)", "uint8", TypeError, "makes int16, and the array that it changes is of uint8"),
        ("x += np.ones((2, 13, 6))", "float64", ValueError, r"shape \(2, 13, 6\).* of shape \(13, 6\)"),
        ("x @= np.ones((6, 2))", "float64", ValueError, r"shape \(13, 2\)"),
        ("x += np.ones(5)", "float64", ValueError, r"\(5,\)"),
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


def test_results_of_calls(client):
    for keep in (False, True):
        result = kept = client.diff(X, axis=0, keep=keep)
        result += 1
        assert isinstance(result, sc.Result)
        np.testing.assert_array_equal(kept.get(), np.diff(X, axis=0) + 1)


def test_copies_keep_their_values(put):
    h = put(X)
    others = [copy.copy(h), h.copy(), h.flatten(), h + 0]
    h += 1
    for other in others:
        np.testing.assert_array_equal(other.get().reshape(X.shape), X)


def test_bucketed_arrays(client):
    b = kept = client.bucket(X)
    b += 1
    np.testing.assert_array_equal(kept.get(), X + 1)


VIEWS_AND_COPIES = """
    x[{1:|None|..., None|...|:0|[0, 1]|x > 3}]
    x.{T|real|ravel()|T.ravel()|reshape(6, 13)|swapaxes(0, 1)|diagonal()|flatten()|copy()|view()|take([0], 0)}
    {x[1:][::2]|x[:, 1:].ravel()|x[:1].squeeze()|x + 0}
    np.{split(x, [3])[1]|broadcast_to(x, (2, 13, 6))|atleast_3d(x)|rot90(x)|flip(x)|moveaxis(x, 0, 1)}
    np.{tile(x, 1)|repeat(x, 1, 0)|roll(x, 0)|delete(x, [], 0)|concatenate([x])}
    """


def test_memory_is_described_as_numpys(client):
    x, h = X.copy(), client.put(X)
    for make in calls_of(VIEWS_AND_COPIES):
        mine, numpys = (eval(make, {"np": np, "x": array}) for array in (h, x))
        is_view = np.shares_memory(numpys, x)  # of temporary arrays, NumPy's alone know
        assert np.shares_memory(mine, h) == is_view, make
        assert np.may_share_memory(mine, h) == np.may_share_memory(numpys, x), make
        assert not is_view or (mine.base is None) == (numpys.base is None), make
        for flag in ("c_contiguous", "f_contiguous", "writeable", *["owndata"][not is_view :]):
            assert getattr(mine.flags, flag) == getattr(numpys.flags, flag), (make, flag)
        strides = zip(mine.strides, numpys.strides, numpys.shape, strict=True)
        assert all(ours == theirs for ours, theirs, size in strides if size > 1), make


@pytest.mark.parametrize("make", ["x.diagonal()", "np.broadcast_to(x, (2, 13, 6))", "np.broadcast_to(x, x.shape)[1:]"])
def test_read_only_views_are_not_written_to(put, make):
    for x in (X.copy(), put(X)):
        view = eval(make, {"x": x, "np": np})
        for write in (lambda view=view: view.__setitem__(0, 1), lambda view=view: np.add(view, 1, out=view)):
            with pytest.raises(ValueError, match="read-only"):
                write()
        with pytest.raises(ValueError, match="read-only"):
            view += 1


def test_attributes_are_not_set(put):
    h = put(X)
    for name in ("dtype", "strides", "base", "label"):
        with pytest.raises(AttributeError, match=f"'{name}' of a RemoteArray cannot be set"):
            setattr(h, name, 0)

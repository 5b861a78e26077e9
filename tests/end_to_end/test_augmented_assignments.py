"""Augmented assignments (``a += b``), which change the array as NumPy's do, and writes to parts of arrays."""

import warnings

import numpy as np
import pytest

import shardcall as sc

X = np.arange(1.0, 79.0).reshape(13, 6)
ROW = np.arange(1.0, 7.0)


@pytest.fixture
def put(client):
    return lambda x: client.put(x, mesh=sc.Mesh(x=8))


def changed(statement, x, **names):
    """The arrays x and y after a statement, of which y was x before."""
    names = {"x": x, "y": x, "np": np, "ROW": ROW, **names}
    exec(statement, names)
    return names["x"], names["y"]


@pytest.mark.parametrize(
    "statement",
    [
        *("x += 1", "x -= x", "x *= ROW", "x /= 2", "x //= 2", "x %= 3", "x **= 2", "x @= np.diag(ROW)"),
        *("x += ROW.tolist()", "x += np.float32(0.5)", "x[1:3] += 5", "x[x > 5] *= 2", "x[[0, 2], 1] -= ROW[:2]"),
        *("x[:] += 1", "x[...] = x + 1", "x[2, 1:] += ROW[1:]", "x = x + 1"),
    ],
)
def test_every_name_of_the_array_sees_what_numpy_changes(put, statement):
    for mine, numpys in zip(changed(statement, put(X)), changed(statement, X.copy()), strict=True):
        np.testing.assert_array_equal(mine.get(), numpys)
        assert (mine.dtype, mine.shape) == (numpys.dtype, numpys.shape)


@pytest.mark.parametrize("statement", ["x &= 5", "x |= 8", "x ^= x", "x <<= 1", "x >>= 1", "x += np.int8(3)"])
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_integers_keep_their_type(put, statement, dtype):
    x = (X % 16).astype(dtype)
    if dtype == "uint8" and "int8" in statement:
        with pytest.raises(TypeError):
            changed(statement, x.copy())
        with pytest.raises(TypeError, match="makes int16, and the array that it changes is of uint8"):
            changed(statement, put(x))
        return
    mine, numpys = changed(statement, put(x))[1], changed(statement, x.copy())[1]
    np.testing.assert_array_equal(mine.get(), numpys)
    assert mine.dtype == numpys.dtype


@pytest.mark.parametrize(
    ("statement", "dtype", "error_class", "message"),
    [
        ("x /= 2", "int64", TypeError, "divide in place makes float64, and the array that it changes is of int64"),
        ("x += 0.5", "int64", TypeError, "float64"),
        ("x += 1j", "float64", TypeError, "complex128"),
        ("x += 1", "bool", TypeError, "int64"),
        ("x -= x", "bool", TypeError, "bool"),
        ("x += 300", "uint8", OverflowError, "300"),
        ("x += np.ones((2, 13, 6))", "float64", ValueError, r"shape \(2, 13, 6\).* of shape \(13, 6\)"),
        ("x @= np.ones((6, 2))", "float64", ValueError, r"shape \(13, 2\)"),
        ("x += np.ones(5)", "float64", ValueError, r"\(5,\)"),
    ],
)
def test_what_numpy_refuses_is_refused_and_changes_nothing(put, statement, dtype, error_class, message):
    x = X.astype(dtype)
    with pytest.raises(error_class):
        changed(statement, x.copy())
    h = put(x)
    with pytest.raises(error_class, match=message):
        changed(statement, h)
    np.testing.assert_array_equal(h.get(), x)


def test_the_arrays_of_a_caller_change(put):
    def centered(x):
        x -= x.mean(0)

    h, x = put(X), X.copy()
    centered(h)
    centered(x)
    np.testing.assert_allclose(h.get(), x, atol=1e-12)


def test_the_layout_stays(client):
    h = client.put(X, mesh=sc.Mesh(x=4, y=2), spec=sc.P("y", "x"))
    h *= client.put(X, mesh=sc.Mesh(x=4, y=2), spec=sc.P("x"))
    assert h.spec == sc.P("y", "x")


def test_numbers_are_scalars_where_numpys_are(client, put):
    h = put(X)
    numbers = [h.sum(), np.max(h), h[1, 2], h.mean() + 1, np.percentile(h, 50), np.median(h)]
    arrays = [client.put(np.array(3.0)), client.xp.zeros(()), h[:1, :1].reshape(()).copy(), h[0, 1, ...].copy()]
    for value, is_scalar in [*((n, True) for n in numbers), *((a, False) for a in arrays)]:
        after = value
        after += 1
        assert (after is value) != is_scalar
        assert float(after) - float(value) == is_scalar


def test_an_array_of_this_process_takes_one_of_the_mesh(put):
    x = np.zeros((13, 6))
    kept = x
    x += put(X)
    assert x is kept
    np.testing.assert_array_equal(x, X)


def test_results_of_calls(client):
    for keep in (False, True):
        result = kept = client.diff(X, axis=0, keep=keep)
        result += 1
        assert isinstance(result, sc.Result)
        np.testing.assert_array_equal(kept.get(), np.diff(X, axis=0) + 1)


def test_copies_keep_their_values(put):
    import copy

    h = put(X)
    others = [copy.copy(h), h.copy(), h.flatten(), h + 0]
    h += 1
    for other in others:
        np.testing.assert_array_equal(other.get().reshape(X.shape), X)


def test_bucketed_arrays(client):
    b = kept = client.bucket(X)
    b += 1
    np.testing.assert_array_equal(kept.get(), X + 1)


@pytest.mark.parametrize(
    "statement",
    [
        *("v = x[1:]\nv += 5", "x[0][1] = 7", "x.T[0] = 9", "x.ravel()[:] = 1", "v = x[:]\nv[0] = 2", "x[0][1:] += 3"),
        *("v = x[0, ..., 1]\nv += 1", "for row in x:\n    row += 1", "x[2:].sort()", "x.reshape(6, 13)[0] = 0"),
        *("np.split(x, [3])[0].sort()", "np.einsum('ii->i', x[:6])[:] = 0", "x[2:].ravel()[0] = 1"),
        *("np.flip(x)[0] = 1", "np.split(x, [3])[0][:] = 0", "x[:, None][0] = 1", "np.moveaxis(x, 0, 1)[2] = 0"),
    ],
)
def test_a_write_to_a_part_warns_with_its_line(put, statement):
    with pytest.warns(sc.ViewWarning, match=r"changes a part of an array of float64\[13,6\]") as caught:
        exec(compile(statement, "program.py", "exec"), {"x": put(X), "np": np})
    assert {warning.filename for warning in caught} == {"program.py"}
    assert caught[0].lineno == statement.count("\n") + 1


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("parts = np.split(x, [3])\nparts[0] += 1\nx.get()", 2),
        ("rows = list(x)\nrows[1] *= 2\nx + 1", 2),
        ("d = {'w': x[2:5]}\nd['w'] += 1\nd['v'] = x + 1", 2),
    ],
)
def test_a_part_in_another_object_warns_at_the_next_use(put, statement, line):
    with pytest.warns(sc.ViewWarning, match="changes a part") as caught:
        exec(compile(statement, "program.py", "exec"), {"x": put(X), "np": np})
    assert [(warning.filename, warning.lineno) for warning in caught] == [("program.py", line)]


@pytest.mark.parametrize("name", ["flat", "shape", "real", "strides", "label"])
def test_attributes_are_not_set(put, name):
    h = put(X)
    with pytest.raises(AttributeError, match=f"'{name}' of a RemoteArray cannot be set"):
        setattr(h, name, 0)


def test_a_line_warns_once(put):
    h = put(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            h[0][1] = 7
    assert len(caught) == 1


@pytest.mark.parametrize(
    "statement",
    [
        *("x[1:3] += 5", "v = x[1:].copy()\nv += 5", "v = x.flatten()\nv[:] = 1"),
        *("v = xp.arange(6.0).reshape(2, 3)\nv += 1\nv[0] = 3", "v = x[x > 3]\nv += 1", "v = x[[0, 1]]\nv[0] = 1"),
        *(
            "v = x.T.ravel()\nv += 1",
            "v = x[:, 1:].reshape(-1)\nv += 1",
            "v = x[::2].ravel()\nv += 1",
            "v = x[3:3]\nv += 1",
        ),
        *("x = x.reshape(6, 13)\nx += 1", "v = x[0, 1]\nv += 1", "v = -x[1:]\nv += 1", "x[0], x[1] = 1, 2"),
    ],
)
def test_other_writes_do_not_warn(client, put, statement):
    names = {"x": put(X), "xp": client.xp}
    exec(statement, names)  # where warnings are errors


def test_traced_functions_change_only_traced_arrays(client, put):
    def add(y):
        y += 1

    def step(u):
        v = u.copy()
        add(v)
        total = kept = v.sum()
        total += 1
        v[0] *= 2
        w = client.xp.zeros(6).reshape(2, 3)
        w -= 1
        return v, kept, w

    def numpys(u):
        v = u + 1
        total = v.sum()
        v[0] *= 2
        return v, total, np.full((2, 3), -1.0)

    for mine, expected in zip(client.jit(step)(put(X)), numpys(X), strict=True):
        np.testing.assert_allclose(np.asarray(mine), expected)


def test_traced_functions_change_no_bucketed_array_of_others(client):
    b = client.bucket(np.arange(100.0))

    def changed(u):
        nonlocal b
        b += u
        return u

    with pytest.raises(sc.TracingError, match="an array that is not its own"):
        client.jit(changed)(client.put(np.ones(100)))
    np.testing.assert_array_equal(b.get(), np.arange(100.0))


def test_flattened_results_are_copies(client):
    for value in (client.cumsum(X, axis=0), client.cumsum(X, axis=0, keep=True), client.bucket(X[:, 0])):
        before = np.array(value.get())
        flat = value.flatten()
        flat += 1
        np.testing.assert_array_equal(value.get(), before)


def test_numpys_keywords_of_functions_with_others_here(put):
    h, large = put(X), X > 20
    np.testing.assert_allclose(np.gradient(h, axis=0, edge_order=2).get(), np.gradient(X, axis=0, edge_order=2))
    np.testing.assert_allclose(h.std(where=put(large)).get(), X.std(where=large))
    np.testing.assert_allclose(np.var(h, 0, where=put(large), ddof=1).get(), np.var(X, 0, where=large, ddof=1))

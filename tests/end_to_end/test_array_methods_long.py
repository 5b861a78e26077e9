"""The tests of `test_array_methods.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_array_methods import ARRAYS, MESH, K, X, same

import shardcall as sc
from shardcall._src.device_arrays import row_blocks

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def on(client):
    """The arrays on the mesh, by name."""
    return {
        name: client.put(x, mesh=MESH) if x.ndim else client.put(x, mesh=MESH, spec=sc.P())
        for name, x in ARRAYS.items()
    }


@pytest.fixture
def copies(client):
    """Returns the number of implicit copies since it was asked for the last time."""
    counted = [client.statistics().implicit_gets]

    def since():
        counted.append(client.statistics().implicit_gets)
        return counted[-1] - counted[-2]

    return since


CALLS = {
    "item of indices": ("x", lambda x: x.item(3, 2)),
    "item of a tuple": ("x", lambda x: x.item((-1, -1))),
    "item of the flattened array": ("x", lambda x: x.item(-5)),
    "item of a vector": ("v", lambda x: x.item(np.int8(9))),
    "item of a scalar": ("s", lambda x: (x.item(), x.item(0))[1]),
    "argsort(kind=, stable=)": ("x", lambda x: x.argsort(0, kind="stable") + x.argsort(0, stable=True)),
    "argpartition": ("k", lambda x: np.take_along_axis(x, x.argpartition([3, 9], 0), 0)[[3, 9]]),
    "choose": ("k", lambda x: (x % 3).choose([x, 7, X], mode="clip")),
    "sum by position": ("k", lambda x: x.sum(0, None, None, True)),
    "sum of some elements": ("x", lambda x: x.sum(0, None, None, False, 2.5, K > 5)),
    "prod of a type": ("k", lambda x: (x % 3 + 1).prod(1, np.float32)),
    "max by position": ("x", lambda x: x.max(1, None, True, 0.5)),
    "min by position": ("x", lambda x: x.min(1, None, True)),
    "mean by position": ("x", lambda x: x.mean(0, None, None, True, where=K > 3)),
    "std of a type": ("f", lambda x: x.std(dtype=np.float64)),
    "std of a narrower type": ("x", lambda x: x.std(0, np.float32, None, 1, True)),
    "var by position": ("x", lambda x: x.var(0, None, None, 1, True)),
    "var of integers": ("k", lambda x: x.var(1, dtype="f4")),
    "any of some": ("b", lambda x: x.any(0, None, keepdims=True, where=K > 5)),
    "argmax by keyword": ("x", lambda x: x.argmax(axis=0, keepdims=True)),
    "clip from above": ("x", lambda x: x.clip(max=0.5)),
    "clip from below": ("x", lambda x: x.clip(0.5)),
    "take": ("x", lambda x: x.take([1, 5], 0, mode="raise")),
    "trace": ("x", lambda x: x.trace(1, 0, 1, "f4")),
    "astype": ("x", lambda x: x.astype("f4", casting="same_kind", subok=False)),
    "reshape(copy=)": ("x", lambda x: x.reshape(4, 16, order="A", copy=True)),
    "conj of booleans": ("b", lambda x: x.conj()),
    "conj of integers": ("k", lambda x: x.conjugate()),
    "conj": ("z", lambda x: x.conj()),
    "median": ("x", lambda x: np.median(x, axis=0, overwrite_input=False)),
    "nanmedian": ("x", lambda x: np.nanmedian(x, overwrite_input=True)),
    "svd": ("x", lambda x: np.linalg.svd(x, compute_uv=False, hermitian=False)),
    "clip(max=)": ("x", lambda x: np.clip(x, max=0.2)),
    "clip(a_min=, a_max=)": ("x", lambda x: np.clip(x, a_max=0.2, a_min=None)),
    "std(dtype=)": ("f", lambda x: np.std(x, axis=0, dtype=np.float64)),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_methods(on, name):
    array, call = CALLS[name]
    same(call(on[array]), call(ARRAYS[array].copy()))  # of which overwrite_input=True leaves nothing


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: x.sum(0, out=out),
        lambda x, out: x.round(2, out)[0],
        lambda x, out: x.clip(0, 1, out=out)[0],
        lambda x, out: x.cumsum(0, None, out)[0],
        lambda x, out: x.take([0, 1, 2, 3], 1, out),
        lambda x, out: np.median(x, 0, out),
        lambda x, out: np.add(x, 1, out),
        lambda x, out: np.modf(x, out=(None, out))[1],
    ],
)
def test_results_go_to_arrays_of_the_caller(on, copies, call):
    for shape in (4, X.shape):
        ours, expected = np.zeros(shape), np.zeros(shape)
        try:
            result = call(X.copy(), expected)
        except ValueError:
            with pytest.raises(ValueError, match=r"shape|broadcast"):
                call(on["x"], ours)
            continue
        copies()
        same(call(on["x"], ours), result)
        assert copies() == 1
        same(ours, expected)


COPYING = {
    "reduceat": np.add.reduceat,
    "at": lambda x, i: np.hypot.at(x, i, 2.0),
    "repeat": lambda x, i: x.repeat(i, 1),
    "delete": lambda x, i: np.delete(x, i, 0),
    "insert": lambda x, i: np.insert(x, i, 7, 0),
    "partition": lambda x, i: np.partition(x, i, 0)[[0, 3, 5, 9]],
}
"""Calls that copy indices on the mesh to this process."""


@pytest.mark.parametrize("name", COPYING)
def test_copies_of_indices_are_counted(client, strict_client, copies, name):
    indices, call = np.array([0, 3, 5, 9]), COPYING[name]
    h, x = client.put(X, mesh=MESH), X.copy()
    copies()
    result, expected = call(h, client.put(indices, mesh=MESH)), call(x, indices)
    assert copies() == 1
    same(h if result is None else result, x if expected is None else expected)
    h = strict_client.put(X, mesh=MESH)
    with pytest.raises(TypeError, match="implicit_get='error'"):
        call(h, strict_client.put(indices, mesh=MESH))
    same(h, X)
    with pytest.raises(sc.TracingError, match="elements"):
        client.jit(lambda x, i: call(x.copy(), i))(X, indices)


@pytest.mark.parametrize("direction", [iter, reversed], ids=["forwards", "backwards"])
def test_loops_copy_large_arrays_in_blocks(client, copies, monkeypatch, direction):
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", 7 * X[0].nbytes)
    h, v = client.put(X, mesh=MESH), client.put(X[:, 0], mesh=MESH)
    copies()
    np.testing.assert_array_equal([np.asarray(row) for row in direction(h)], [*direction(X)])
    assert copies() == 3
    assert list(direction(v)) == list(direction(X[:, 0].tolist()))
    assert copies() == 1
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", X[0].nbytes)
    assert list(direction(v)) == list(direction(X[:, 0].tolist()))
    assert copies() == 4
    np.testing.assert_array_equal([np.asarray(row) for row in direction(h)], [*direction(X)])
    assert copies() == len(X)


def test_rows_of_a_loop_are_views_that_see_writes(client):
    h, x = client.put(X, mesh=MESH), X.copy()
    for array in (h, x):
        for i, row in enumerate(array):
            row[1:] += np.asarray(row)[0] + np.asarray(array[i - 1])[2]
    same(h, x)
    rows = list(h)
    np.asarray(rows[0])[:] = 0
    same(np.asarray(rows[0]), x[0])
    rows[1].shape = 2, 2
    same(np.asarray(rows[1]), x[1].reshape(2, 2))
    rows[3].delete()
    with pytest.raises(sc.ArrayLostError, match="deleted"):
        np.asarray(rows[3])
    h[:] = 1
    assert np.asarray(rows[2]).tolist() == [1, 1, 1, 1]
    h.delete()
    with pytest.raises(sc.ArrayLostError, match="deleted"):
        np.asarray(rows[2])


def read_by_index(h):
    for i in range(16):
        for j in range(4):
            float(h[i, j])


def read_by_item(h):
    for i in range(64):
        h.item(i)


def read_slices(h):
    for i in range(64):
        np.asarray(h.ravel()[i : i + 1])


@pytest.mark.parametrize("read", [read_by_index, read_by_item, read_slices])
def test_many_reads_of_single_elements_warn_once_with_the_line(client, read):
    h = client.put(X, mesh=MESH)
    with pytest.warns(sc.ElementReadWarning, match=r"float64\[16,4\], were read one by one.*array\.get\(\)") as caught:
        read(h)
    lines = range(read.__code__.co_firstlineno, read.__code__.co_firstlineno + 5)
    assert [(one.filename, one.lineno in lines) for one in caught] == [(__file__, True)]


def test_reads_of_elements_between_writes_and_other_reads_do_not_warn(client):
    h, x = client.put(X, mesh=MESH), X.copy()
    for array in (h, x):
        for i in range(16):
            array[i, 0] = float(array[i, 1]) + float(array[i - 1, 0])
    same(h, x)
    for i in range(20):
        float(h[i % 16, 0])
        h.get()
    for _ in range(20):
        float(h.sum())


def test_libraries_that_describe_arrays(client, on, copies):
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import StandardScaler

    same(StandardScaler().fit_transform(on["x"]), StandardScaler().fit_transform(X))
    ours, expected = (KMeans(2, n_init=1, random_state=0).fit(x).labels_ for x in (on["x"], X))
    assert ours.tolist() == expected.tolist()
    for name in ("x", "v"):
        ours, expected = (np.random.default_rng(1).permutation(x) for x in (on[name], ARRAYS[name]))
        same(ours, expected)

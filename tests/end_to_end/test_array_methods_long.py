"""Indices that are copied, loops that read rows or elements, and libraries that do."""

import numpy as np
import pytest
from end_to_end.numpy_calls import same

import shardcall as sc
from shardcall._src.device_arrays import row_blocks

pytestmark = pytest.mark.long

MESH = sc.Mesh(x=8)
X = np.random.default_rng(4).normal(size=(16, 4))


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
    same((h if result is None else result).get(), x if expected is None else expected)
    h = strict_client.put(X, mesh=MESH)
    with pytest.raises(TypeError, match="implicit_get='error'"):
        call(h, strict_client.put(indices, mesh=MESH))
    same(h.get(), X)
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
    same(h.get(), x)
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
    same(h.get(), x)
    for i in range(20):
        float(h[i % 16, 0])
        h.get()
    for _ in range(20):
        float(h.sum())


def test_numpys_generators_permute_arrays(client):
    for x in (X, X[:, 0]):
        ours, expected = (np.random.default_rng(1).permutation(array) for array in (client.put(x, mesh=MESH), x))
        same(ours, expected)

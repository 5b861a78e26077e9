"""Assignments to elements of arrays on the mesh, and updates that return new arrays, which equal NumPy's."""

import copy
import threading

import numpy as np
import pytest

import shardcall as sc

X = np.random.default_rng(18).normal(size=(13, 6, 5))
MASK = X > 0
LAYOUTS = [sc.P("x"), sc.P("y", None, "x"), sc.P(None, "x")]


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture
def on_mesh(client):
    return lambda x, spec=LAYOUTS[0]: client.put(x, mesh=sc.Mesh(x=4, y=2), spec=spec)


def same(ours, expected):
    assert isinstance(ours, sc.RemoteArray)
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(ours.get(), expected)


ASSIGNED = {
    "an element": ((1, 2, 3), 7),
    "rows": (slice(2, 9), X[3:10]),
    "one row for several": (slice(1, -1), X[0]),
    "a column": ((slice(None), 2), X[:, :1, 0][..., None][:, 0]),
    "steps backwards": ((slice(None, None, -3), slice(1, 5, 2)), X[:5, :2]),
    "a new axis": ((slice(None), None, slice(2, 4)), X[:, None, :2]),
    "all": (..., 1.5),
    "none": (slice(5, 5), 1.5),
    "leading ones": (0, X[None, None, 1]),
    "indices": ([1, -2, 1], X[:3]),
    "indices of two axes": ((np.array([1, 2]), np.array([[3], [0]])), X[:2, :2]),
    "indices apart": ((np.array([0, 7]), slice(1, 4), np.array([1, -1])), X[:2, :3, 0]),
    "an integer and indices": ((3, slice(None), [0, 4]), -1.0),
    "a mask": (MASK, 0.0),
    "a mask of rows": (MASK[:, 0, 0], X[0]),
    "a mask and values for each": (MASK[:, :, 0], np.arange(MASK[:, :, 0].sum())[:, None]),
    "a mask beside a slice": ((MASK[:, 0, 0], slice(1, 3)), 2.0),
    "true": (True, X[0]),
}
LONG = {"steps backwards", "a new axis", "indices apart", "an integer and indices", "a mask beside a slice", "true"}


def cases():
    for i, (name, (key, value)) in enumerate(ASSIGNED.items()):
        for j, spec in enumerate(LAYOUTS):
            marks = pytest.mark.long if name in LONG or i % len(LAYOUTS) != j else ()
            yield pytest.param(key, value, spec, id=f"{name} {spec}", marks=marks)


@pytest.mark.parametrize(("key", "value", "spec"), [*cases()])
def test_assignments(on_mesh, key, value, spec):
    h, x = on_mesh(X, spec), X.copy()
    x[key] = value
    h[key] = value
    same(h, x)
    assert h.spec == on_mesh(X, spec).spec


def test_operators_that_assign_to_elements(on_mesh):
    h, x = on_mesh(X), X.copy()
    for array in (h, x):
        array[1:4] += 1
        array[[0, 0, 5]] *= 2
        array[..., 0] = -array[..., 0]
    same(h, x)


def test_an_assignment_changes_the_array_and_its_views(client, on_mesh):
    h = on_mesh(X)
    alias, kept, deep, before = h, copy.copy(h), copy.deepcopy([h])[0], h.handle
    full, doubled, rows = h[...], 2 * h, iter(h)
    first = next(rows)
    h[1] = 0
    assert alias is h
    assert h.handle != before == kept.handle == deep.handle
    for unchanged in (kept, deep):
        same(unchanged, X)
    same(full, np.concatenate([X[:1], np.zeros((1, 6, 5)), X[2:]]))
    same(doubled, 2 * X)
    same(first, X[0])
    same(next(rows), np.zeros((6, 5)))
    assert client.describe(h.handle) is h
    assert {array.handle for array in client.list()} >= {h.handle, before}
    kept[0] = 1
    same(h[0], X[0])
    same(deep, X)


def test_assignments_of_several_threads(client):
    h, wrong = client.put(np.zeros(64), mesh=sc.Mesh(x=8)), []

    def assign(value):
        for _ in range(20):
            h[:] = value

    def read():
        for _ in range(20):
            values = (h + 0).get()
            if len(set(values.tolist())) > 1:
                wrong.append(values)

    threads = [threading.Thread(target=assign, args=(value,)) for value in (1.0, 2.0)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert set(h.get().tolist()) in ({1.0}, {2.0})


def test_conversions_that_lose_something_warn_or_are_refused_as_numpys(on_mesh):
    h, x = on_mesh(np.zeros(4, np.int8)), np.zeros(4, np.int8)
    for key, value, error in [
        (0, 300, OverflowError),
        (slice(0, 1), [1, 2], ValueError),
        (slice(0, 3), np.ones(2), ValueError),
        ([0, 1], np.ones(3), ValueError),
        (np.array([True, False, True, False]), np.ones(3), ValueError),
        (0, float("nan"), ValueError),
        (0, 1j, TypeError),
        (4, 1, IndexError),
        ([0, 4], 1, IndexError),
        (1.5, 1, IndexError),
    ]:
        for array in (x, h):
            with pytest.raises(error):
                array[key] = value
    same(h, x)
    for value in (np.array([1j]), on_mesh(np.array([1j]))):
        with pytest.warns(np.exceptions.ComplexWarning):
            h[:1] = value


def test_an_array_of_this_process_takes_the_values_of_one_on_the_mesh(server):
    x = np.zeros(X.shape)
    with sc.connect(server.address) as copying:
        np.copyto(x, copying.put(X))
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool"])
def test_none_is_assigned_as_nan(client, dtype):
    expected = np.ones(3, dtype)
    array = client.put(expected)
    array[1], expected[1] = None, None
    np.testing.assert_array_equal(array.get(), expected)
    with pytest.raises(TypeError, match="NoneType"):
        client.put(np.ones(3, int))[1] = None

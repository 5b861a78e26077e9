"""Assignments to elements of arrays on the mesh, and updates that return new arrays, which equal NumPy's."""

import copy
import gc
import threading
import warnings

import numpy as np
import pytest
from end_to_end.processes import wait_for

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


def test_values_and_masks_may_be_on_the_mesh(on_mesh):
    h, x = on_mesh(X), X.copy()
    h[h > 0] = 0
    x[x > 0] = 0
    same(h, x)
    h[2:5] = h[:3] + 1
    x[2:5] = x[:3] + 1
    same(h, x)
    h[h[:, 0, 0] < 0] = on_mesh(X[0].astype(np.float32), sc.P())
    x[x[:, 0, 0] < 0] = X[0].astype(np.float32)
    same(h, x)
    h[h.argmax(0)[0, 0]] = 9
    x[x.argmax(0)[0, 0]] = 9
    same(h, x)


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


def test_the_array_before_an_assignment_is_deleted(server):
    with sc.connect(server.address) as client:
        h = client.put(np.zeros(4096), mesh=sc.Mesh(x=8))
        for i in range(100):
            h[i] = i
        np.testing.assert_array_equal(h.get()[:100], np.arange(100))
        gc.collect()
        wait_for(lambda: len(client.list()) == 1)
        with h:
            h[0] = 5
            last = copy.copy(h)
            h[1] = 6
        assert h.lost
        assert last.get()[:2].tolist() == [5, 1]
        with pytest.raises(sc.ArrayLostError):
            h[0] = 1
        del last
        gc.collect()
        wait_for(lambda: not client.list())


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


@pytest.mark.parametrize("dtype", ["int8", "bool", "float32", "complex64"])
def test_values_are_converted_as_numpy_converts_them(on_mesh, dtype):
    x = np.zeros(9, dtype)
    h = on_mesh(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        for array in (h, x):
            array[1:4] = [1.75, -2.5, 0]
            array[4] = 3
            array[5:7] = np.array([1 + 2j, 3j])
    h[7:] = on_mesh(np.array([2.5, 0.0]))
    x[7:] = np.array([2.5, 0.0])
    same(h, x)


def test_complex_numbers_become_bools_by_both_parts(on_mesh):
    values = np.array([3j, 0, 1 + 0j] * 7)
    for key in (slice(None), [0, 1, 2], np.arange(21) % 2 == 0):
        x = np.zeros(21, bool)
        h, new = on_mesh(x, sc.P("x")), values[: x[key].size]
        h[key] = on_mesh(new, sc.P("x"))
        x[key] = new
        same(h, x)


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


UPDATES = {
    "set": lambda x, key, y: x.__setitem__(key, y),
    "add": np.add.at,
    "multiply": np.multiply.at,
    "divide": np.divide.at,
    "power": np.power.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}
KEYS = [(slice(2, 9), 3), [1, 4, 1], MASK[..., :1] & np.ones(5, bool)]


@pytest.mark.parametrize("name", UPDATES)
def test_updates_return_a_new_array(on_mesh, name):
    x = np.abs(X) + 0.5
    h = on_mesh(x)
    for key in KEYS:
        expected = x.copy()
        UPDATES[name](expected, key, 1.5)
        result = getattr(h.at[key], name)(1.5)
        np.testing.assert_allclose(result.get(), expected, rtol=1e-12)
    same(h, x)


def test_updates_take_elements_and_functions(client, on_mesh):
    h = on_mesh(X)
    same(h.at[1:3, 0].get(), X[1:3, 0])
    expected = X.copy()
    expected[1:3] = np.sin(X[1:3])
    np.testing.assert_allclose(h.at[1:3].apply(np.sin).get(), expected)
    counts = client.put(np.zeros(5, np.int64), mesh=sc.Mesh(x=2))
    k = np.random.default_rng(1).integers(0, 5, 4096)
    same(counts.at[k].add(1), np.bincount(k, minlength=5))
    before = h.at[0]
    h[0] = 0
    same(before.set(X[0]), X)


def test_an_array_of_this_process_takes_the_values_of_one_on_the_mesh(server):
    x = np.zeros(X.shape)
    with sc.connect(server.address) as copying:
        np.copyto(x, copying.put(X))
    np.testing.assert_array_equal(x, X)


ITEMS = [
    *(3, -1, slice(None), slice(1, 4), slice(None, None, -2), None, ..., [0, 2], [[1], [-1]], np.array([0]), True),
    *(np.array([True, False, True, False, True]), np.eye(5, dtype=bool)),
]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_indices_of_all_types_together(on_mesh, seed):
    random, x = np.random.default_rng(seed), np.arange(625).reshape(5, 5, 5, 5)
    h, tried = on_mesh(x, sc.P("y", None, "x")), 0
    while tried < 5:
        key = tuple(ITEMS[i] for i in random.integers(0, len(ITEMS), random.integers(1, 5)))
        try:
            expected = x[key]
        except IndexError:
            with pytest.raises(IndexError):
                h[key]
            continue
        tried += 1
        same(h[key], np.asarray(expected))
        changed, y = copy.copy(h), x.copy()
        changed[key] = y[key] = -7
        same(changed, y)


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool"])
def test_none_is_assigned_as_nan(client, dtype):
    expected = np.ones(3, dtype)
    array = client.put(expected)
    array[1], expected[1] = None, None
    np.testing.assert_array_equal(array.get(), expected)
    with pytest.raises(TypeError, match="NoneType"):
        client.put(np.ones(3, int))[1] = None

"""The tests of `test_array_assignments.py` that take long."""

import copy
import gc
import warnings

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_array_assignments import LAYOUTS, MASK, X, same

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture
def on_mesh(client):
    return lambda x, spec=LAYOUTS[0]: client.put(x, mesh=sc.Mesh(x=4, y=2), spec=spec)


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

"""Indices and assignments, random ones of all types together, updates, and what is freed."""

import copy
import gc

import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, MESH, check_call
from end_to_end.processes import wait_for
from end_to_end.test_array_indexing import GRID

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.mark.parametrize("key", [":", "[0, 1, 2]", "np.arange(21) % 2 == 0"])
def test_complex_numbers_become_bools_by_both_parts(strict_client, key):
    values = f"put(np.array([3j, 0, 1 + 0j] * 7)[: np.zeros(21)[{key}].size])"
    check_call(strict_client, f"t = put(np.zeros(21, bool)); t[{key}] = {values}", exact=True)


ITEMS = [
    *(3, -1, slice(None), slice(1, 4), slice(None, None, -2), None, ..., [0, 2], [[1], [-1]], np.array([0]), True),
    *(np.array([True, False, True, False, True]), np.eye(5, dtype=bool)),
]


@pytest.mark.parametrize("seed", range(20))
def test_indices_of_all_types_together(strict_client, seed):
    random, x = np.random.default_rng(seed), np.arange(625).reshape(5, 5, 5, 5)
    h, tried = strict_client.put(x, mesh=MESH, spec=sc.P("b", None, "a")), 0
    while tried < 5:
        key = tuple(ITEMS[i] for i in random.integers(0, len(ITEMS), random.integers(1, 5)))
        try:
            expected = x[key]
        except IndexError:
            with pytest.raises(IndexError):
                h[key]
            continue
        tried += 1
        np.testing.assert_array_equal(h[key].get(), np.asarray(expected), strict=True)
        changed, y = copy.copy(h), x.copy()
        changed[key] = y[key] = -7
        np.testing.assert_array_equal(changed.get(), y, strict=True)


UPDATES = {
    "set": lambda x, key, y: x.__setitem__(key, y),
    "add": np.add.at,
    "multiply": np.multiply.at,
    "divide": np.divide.at,
    "power": np.power.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_return_a_new_array(strict_client, name):
    x = np.abs(GRID) + 0.5
    h = strict_client.put(x, mesh=MESH, spec=sc.P("a", "b"))
    for key in ((slice(2, 9), 3), [1, 4, 1], (GRID > 0)[..., :1] & np.ones(5, bool)):
        expected = x.copy()
        UPDATES[name](expected, key, 1.5)
        np.testing.assert_allclose(getattr(h.at[key], name)(1.5).get(), expected, rtol=1e-12)
    np.testing.assert_array_equal(h.get(), x)


def test_updates_take_elements_and_functions(strict_client):
    h = strict_client.put(GRID, mesh=MESH, spec=sc.P("a", "b"))
    np.testing.assert_array_equal(h.at[1:3, 0].get().get(), GRID[1:3, 0])
    expected = GRID.copy()
    expected[1:3] = np.sin(GRID[1:3])
    np.testing.assert_allclose(h.at[1:3].apply(np.sin).get(), expected)
    k = ARRAYS["COUNTS"] % 5
    counts = strict_client.put(np.zeros(5, np.int64), mesh=sc.Mesh(x=2))
    np.testing.assert_array_equal(counts.at[k].add(1).get(), np.bincount(k))
    before = h.at[0]
    h[0] = 0
    np.testing.assert_array_equal(before.set(GRID[0]).get(), GRID)


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


def test_a_loop_with_an_index_compiles_once(server_factory):
    with sc.connect(server_factory(why="its programs are counted").address) as client:
        h, before = client.put(GRID, mesh=sc.Mesh(x=2)), 0
        for k in range(13):
            assert float(h[k].sum()) == pytest.approx(GRID[k].sum())
            if k == 1:  # the first calls may be recorded otherwise than those of a loop
                client.synchronize()
                before = client.usage().programs
        assert client.usage().programs == before

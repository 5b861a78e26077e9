"""Indices of arrays on the mesh and assignments to elements, which equal NumPy's."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, MESH, X, calls_of, check_call

import shardcall as sc

GRID = ARRAYS["GRID"]
LAYOUTS = (("a", "b", None), (None, "a", "b"), ("b", None, "a"))

INDICES = """
    t = put(np.zeros(3, bool)); t[0] = [0]; t[1] = []; t[2] = np.array([1])
    grid[{3|-1, 2|1, 2, 3|1:-1|2:9, 1:|::3, ::-1|10:2:-3|5:5|10:100|..., 0|:, None, 2:4|...|..., ()}]
    grid[{np.int32(4)|np.array([3, 0, -1, 3])|:, [2, 1]|:, (1, 0)|(1, 0),|np.array([[1], [2]]), :, [0, -1]}]
    grid[:, (0, 1)] += 1; np.add.at(grid, (slice(None), (0, 1)), 1); grid[1:, (0, 2)] = 0
    grid[grid[:, 0, 0] < 0] = put(GRID[0].astype('f4')); grid[::-3, 1:5:2] = GRID[:5, :2]
    grid[{grid > 0|grid[:, 0, 0] > 0|grid.argmax(0)[0], 1|grid.argmax(0)[0, 0]}]
    """


def test_elements_are_numpys(strict_client):
    """In one of the layouts each."""
    for number, call in enumerate(calls_of(INDICES)):
        check_call(strict_client, call, exact=True, axes=LAYOUTS[number % len(LAYOUTS)])


def test_a_slice_stays_sharded(client):
    u = client.put(X, mesh=sc.Mesh(x=8), spec=sc.P("x", None))
    assert u[1:-1].spec == sc.P("x", None)
    assert u[:, 2].spec == sc.P("x")
    stencil = u[1:-1] + 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
    np.testing.assert_allclose(stencil.get(), X[1:-1] + 0.25 * (X[2:] - 2 * X[1:-1] + X[:-2]))


def test_scalars_have_indices_that_choose_nothing(strict_client):
    h = strict_client.put(np.float64(3))
    assert h[()].get() == 3
    assert h[None].get().tolist() == [3]


@pytest.mark.parametrize("shape", [(1, 37), (37, 1)], ids=str)
@pytest.mark.parametrize("spec", [sc.P("a"), sc.P(None, "a"), sc.P("a", "b")], ids=str)
def test_every_device_has_the_elements_of_an_axis_of_one_element(strict_client, shape, spec):
    x = np.random.default_rng(19).normal(size=shape)
    key = (0,) if shape[0] == 1 else (slice(None), -1)
    others = strict_client.put(np.zeros(37), mesh=MESH, spec=sc.P("b"))  # each device adds what it has
    np.testing.assert_array_equal((others + strict_client.put(x, mesh=MESH, spec=spec)[key]).get(), x[key])


def test_an_assignment_makes_an_array_of_another_handle(strict_client):
    h = strict_client.put(X, mesh=MESH, spec=sc.P("a"))
    kept, deep, before = copy.copy(h), copy.deepcopy([h])[0], h.handle
    h[1] = 0
    assert h.handle != before == kept.handle == deep.handle
    assert strict_client.describe(h.handle) is h
    assert {array.handle for array in strict_client.list()} >= {h.handle, before}
    kept[0] = 1
    np.testing.assert_array_equal(deep.get(), X)


def test_assignments_of_several_threads(strict_client):
    h = strict_client.put(np.zeros(64), mesh=sc.Mesh(x=8))

    def assign(value):
        for _ in range(20):
            h[:] = value

    def read():
        for _ in range(20):
            assert len(set((h + 0).get().tolist())) == 1

    with ThreadPoolExecutor(4) as pool:
        threads = [*(pool.submit(assign, value) for value in (1.0, 2.0)), *(pool.submit(read) for _ in range(2))]
    assert [thread.result() for thread in threads] == [None] * 4
    assert set(h.get().tolist()) in ({1.0}, {2.0})


def test_complex_values_lose_their_imaginary_parts_with_a_warning(strict_client):
    h = strict_client.put(np.zeros(4, np.int8))
    for value in (np.array([1j]), strict_client.put(np.array([1j]))):
        with pytest.warns(np.exceptions.ComplexWarning):
            h[:1] = value


@pytest.mark.parametrize("dtype", ["float32", "complex64", "bool"])
def test_none_is_assigned_as_nan(strict_client, dtype):
    expected = np.ones(3, dtype)
    array = strict_client.put(expected)
    array[1], expected[1] = None, None
    np.testing.assert_array_equal(array.get(), expected)
    with pytest.raises(TypeError, match="NoneType"):
        strict_client.put(np.ones(3, int))[1] = None

"""Writes of traced functions to their arguments and to arrays that they refer to, which are NumPy's after a call."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shardcall as sc

X = np.arange(24.0).reshape(4, 6)


@pytest.fixture
def put(client):
    return lambda x: client.put(x, mesh=sc.Mesh(x=8))


def equal(mine, numpys):
    for ours, theirs in zip(mine, numpys, strict=True):
        np.testing.assert_array_equal(np.asarray(ours.get() if isinstance(ours, sc.RemoteArray) else ours), theirs)


def written(x):
    x[:] = x[::-1]
    x += 1


def returned(x):
    x[1] = 0
    return x * 2, x[2:].sum()


def test_a_program_is_traced_once_although_it_writes(client, put):
    total = put(np.zeros(6))

    def add(x):
        total[...] += x.sum(0)

    traced = client.jit(add)
    for i in range(4):
        traced(put(X + i))
    assert len(traced._programs) == 1
    np.testing.assert_array_equal(total.get(), sum((X + i).sum(0) for i in range(4)))


def test_what_cannot_be_written_is_refused_before_the_call(client, put):
    h = put(X)
    for argument in (
        np.broadcast_to(np.arange(6.0), (4, 6)),
        np.broadcast_to(h, (4, 6)),
        np.broadcast_to(h[0], (4, 6)),
    ):
        with pytest.raises(ValueError, match="read-only"):
            client.jit(written)(argument)
    with pytest.raises(sc.TracingError, match=r"writes to an array of its caller.*repeat"):
        client.jit(returned).repeat(h, times=3)

    def in_a_loop(x):
        return client.xp.fori_loop(0, 3, lambda i, s: [x.__setitem__(0, s), s][1], x[0])

    with pytest.raises(sc.TracingError, match="changes an array from outside of it"):
        client.jit(in_a_loop)(h)

    def shaped(x):
        x.shape = 24
        return x + 1

    with pytest.raises(sc.TracingError, match=r"sets the shape of its argument x"):
        client.jit(shaped)(h)
    equal([h], [X])


def test_a_view_read_in_a_loop_is_computed_outside(client, put):
    def function(x):
        part = x[1:]
        total = client.xp.fori_loop(0, 3, lambda i, s: s + part.sum(), 0.0 * x[0, 0])
        part[0] = 1
        return total + part.sum()

    h = put(X)
    result = client.jit(function)(h)
    x = X.copy()
    total = 3 * x[1:].sum()
    x[1] = 1
    equal([result, h], [total + x[1:].sum(), x])


def test_arguments_without_axes_are_arrays_or_scalars(client, put):
    def add(total, x):
        total += x.sum()
        return total

    traced, h = client.jit(add), put(X)
    total, scalar = put(np.zeros(())), h.min()
    for _ in range(2):
        assert traced(total, h) is total
        assert float(traced(scalar, h)) == X.sum()
    assert (float(total), float(scalar)) == (2 * X.sum(), 0)


def test_large_arrays_of_this_process_are_put_on_the_mesh_once(server):
    weights = np.random.default_rng(0).random((512, 600))
    x = np.random.default_rng(1).random((4, 512))
    with sc.connect(server.address) as client:
        traced, h = client.jit(lambda x: x @ weights), client.put(x, mesh=sc.Mesh(x=8))
        for _ in range(3):
            np.testing.assert_allclose(traced(h).get(), x @ weights)
            assert [array.shape for array in client.list()].count(weights.shape) == 1
        weights[0] = 2
        np.testing.assert_allclose(traced(h).get(), x @ weights)
        client.delete(*[array for array in client.list() if array.shape == weights.shape])
        np.testing.assert_allclose(traced(h).get(), x @ weights)


def test_arrays_that_a_function_refers_to_are_deleted_when_they_are_dropped(client, put):
    gc.collect()
    gc.disable()
    try:
        kept, x = [put(X)], put(X)
        traced = client.jit(lambda u, h=kept[0]: u + h[0])
        traced(x).get()
        there = len(client.list())
        kept.clear()
        del traced
        client.put(np.ones(3)).delete()  # after the dropped arrays
        assert len(client.list()) < there
    finally:
        gc.enable()


def test_an_array_of_this_process_takes_the_values_unless_it_may_share_memory_with_another(client):
    def masked(x, y):
        x[x > 9] = np.sqrt(x[x > 9]) * 2
        x[1:] += y[0, 0]
        return x[x > 3].sum()

    here, expected, zero = X.copy(), X.copy(), np.zeros((1, 1))
    traced = client.jit(masked)
    for _ in range(2):
        np.testing.assert_allclose(traced(here, zero).get(), masked(expected, zero))
        np.testing.assert_allclose(here, expected)
    for other in (here, here[::-1], here[1:3]):
        with pytest.raises(sc.TracingError, match="changes its argument x, which may share memory with its argument y"):
            traced(here, other)
    np.testing.assert_allclose(here, expected)


@pytest.mark.parametrize(("x", "density"), [(np.arange(9, dtype="f4"), True), (np.ones(5), False)])
def test_histograms_without_a_range(client, put, x, density):
    counts, edges = client.jit(lambda a: np.histogram(a, 12, density=density))(put(x))
    expected, expected_edges = np.histogram(x, 12, density=density)
    np.testing.assert_allclose(counts.get(), expected, rtol=1e-6)
    np.testing.assert_allclose(edges.get(), expected_edges, rtol=1e-6)
    assert (counts.dtype, edges.dtype) == (expected.dtype, expected_edges.dtype)


def test_threads_that_write_to_one_array_lose_nothing(client):
    h = client.put(np.zeros(16), mesh=sc.Mesh(x=8))

    def work(i):
        for _ in range(10):
            h[i] += 1
            h[i + 4 :: 4] += 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    np.testing.assert_array_equal(h.get(), 10)

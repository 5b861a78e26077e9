"""Writes of traced functions to their arguments and to arrays that they refer to, which are NumPy's after a call."""

import gc
import threading

import numpy as np
import pytest
from pairs import pairs_of

import shardcall as sc

X = np.arange(24.0).reshape(4, 6)


@pytest.fixture(params=[1, 8])
def put(client, request):
    return lambda x: client.put(x, mesh=sc.Mesh(x=request.param))


def equal(mine, numpys):
    for ours, theirs in zip(mine, numpys, strict=True):
        np.testing.assert_array_equal(np.asarray(ours.get() if isinstance(ours, sc.RemoteArray) else ours), theirs)


def written(x):
    x[:] = x[::-1]
    x += 1


def parts(x):
    x[1:-1] += 5
    x[0][1] = 7
    x.T[0] = 9
    x.ravel()[3] = 2
    x[:, 3:].sort()
    np.add(x[1:], 1, out=x[:-1])
    np.add.at(x[2], [0, 0, 3], 1)
    x.flat[[4, 5]] = 3


def returned(x):
    x[1] = 0
    return x * 2, x[2:].sum()


def masked(x):
    x[x > 9] = np.sqrt(x[x > 9]) * 2
    m = x > 3
    x[m] += 1
    x[m] = 2 * x[m] - x.max()
    rows = x[:, 0] > 1
    x[rows] *= x[0]
    x[~rows] = np.where(x[~rows] > 2, x[~rows], -1)
    return x[m].sum(), x[x > 2].mean(), x[rows].sum(0), np.any(x[m] > 3), x[m].max(), np.count_nonzero(x[m])


@pytest.mark.parametrize("function", [written, parts, returned, masked])
def test_an_argument_is_as_after_the_function(client, put, function):
    traced, x, h = client.jit(function), X.copy(), put(X)
    other = X.copy()  # of this process, which takes the values
    kept = h
    for _ in range(3):
        mine, numpys = traced(h), function(x)
        here = traced(other)
        np.testing.assert_allclose(h.get(), x)
        np.testing.assert_allclose(other, x)
        for ours, local, theirs in zip(mine or (), here or (), numpys or (), strict=True):
            np.testing.assert_allclose(ours.get(), theirs)
            np.testing.assert_allclose(local.get(), theirs)
            assert ours.dtype == theirs.dtype
    assert h is kept


def test_views_of_an_argument_are_arguments_and_results(client, put):
    def function(x, row):
        x[0] = row
        row += 1
        return x, x[1:], row

    traced, x, h = client.jit(function), X.copy(), put(X)
    for _ in range(2):
        mine, numpys = traced(h, h[2]), function(x, x[2])
        equal([h, *mine], [x, *numpys])
    assert mine[0] is h
    assert mine[1].base is h
    mine[1][:] = 3
    numpys[1][:] = 3
    equal([h], [x])


@pytest.mark.parametrize(
    "arguments",
    [lambda x: (x, x[::-1]), lambda x: (x, x), lambda x: (x[:2], x[1:3]), lambda x: (x.T[:4].T, x[:, 2:])],
)
def test_arguments_that_share_memory(client, put, arguments):
    def function(x, y):
        x[0] = y[1]
        y[1] = x[0] + 1

    traced, x, h = client.jit(function), X.copy(), put(X)
    for _ in range(2):
        traced(*arguments(h))
        function(*arguments(x))
        equal([h], [x])
    here = X.copy()
    with pytest.raises(sc.TracingError, match=r"changes its argument x, which may share memory with its argument y"):
        traced(*arguments(here))
    np.testing.assert_array_equal(here, X)
    a, b = put(X), put(X + 1)
    traced(a, b)
    x, y = X.copy(), X + 1
    function(x, y)
    equal([a, b], [x, y])


def test_arrays_that_the_function_refers_to(client, put):
    def make(h):
        part = h[1:]

        def function(x):
            h[0] = x[1]
            part[0] += h[0]
            x[2] = 4
            return h.sum() + part.sum()

        return function

    x, h, k, other = X.copy(), put(X), X + 1, put(X + 1)
    traced, function = client.jit(make(h)), make(x)
    for mine, numpys in ((other, k), (h, x), (other, k), (h[:, ::-1], x[:, ::-1])):
        equal([traced(mine), h, other], [function(numpys), x, k])
    h[:] = 0
    x[:] = 0
    equal([traced(other), h], [function(k), x])


def test_a_program_is_traced_once_although_it_writes(client, put):
    total = put(np.zeros(6))

    def add(x):
        total[...] += x.sum(0)

    traced = client.jit(add)
    for i in range(4):
        traced(put(X + i))
    assert len(traced._programs) == 1
    np.testing.assert_array_equal(total.get(), sum((X + i).sum(0) for i in range(4)))


def test_views_taken_before_see_the_writes(client, put):
    h = put(X)
    part, copy = h[1:3], h.copy()
    client.jit(written)(h)
    x = X.copy()
    written(x)
    equal([part, copy], [x[1:3], X])


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


def test_a_call_that_fails_changes_nothing(client, put):
    def inverted(x):
        x[:] = np.linalg.inv(x)

    h = put(np.zeros((4, 4)))
    client.jit(inverted)(h)
    with pytest.raises(np.linalg.LinAlgError):
        h.get()


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


@pytest.mark.parametrize(
    "function",
    [lambda x: x[x > 0].size, lambda x: np.sort(x[x > 0]), lambda x: x[x > 0], lambda x: x[x > 0] + x[x > 1]],
)
def test_functions_that_need_the_number_of_masked_elements_are_refused(client, put, function):
    with pytest.raises(sc.TracingError, match="elements where a mask is true"):
        client.jit(function)(put(X))


@pytest.mark.parametrize(
    ("x", "density"),
    pairs_of(
        [np.random.default_rng(0).normal(size=1000), np.arange(7), np.ones(5), np.arange(9, dtype="f4")], [False, True]
    ),
)
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

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(h.get(), 10)


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
        client.put(np.ones(3))  # which deletes dropped arrays
        assert len(client.list()) < there
    finally:
        gc.enable()

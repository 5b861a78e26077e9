"""Functions that write to their arguments in every way, and to those that share memory."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.test_traced_writes import X, equal, returned, written

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture
def put(client):
    return lambda x, devices=8: client.put(x, mesh=sc.Mesh(x=devices))


def parts(x):
    x[1:-1] += 5
    x[0][1] = 7
    x.T[0] = 9
    x.ravel()[3] = 2
    x[:, 3:].sort()
    np.add(x[1:], 1, out=x[:-1])
    np.add.at(x[2], [0, 0, 3], 1)
    x.flat[[4, 5]] = 3


def masked(x):
    x[x > 9] = np.sqrt(x[x > 9]) * 2
    m = x > 3
    x[m] += 1
    x[m] = 2 * x[m] - x.max()
    rows = x[:, 0] > 1
    x[rows] *= x[0]
    x[~rows] = np.where(x[~rows] > 2, x[~rows], -1)
    return x[m].sum(), x[x > 2].mean(), x[rows].sum(0), np.any(x[m] > 3), x[m].max(), np.count_nonzero(x[m])


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("function", [written, parts, returned, masked])
def test_an_argument_is_as_after_the_function(client, put, function, devices):
    traced, x, h = client.jit(function), X.copy(), put(X, devices)
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


@pytest.mark.parametrize(
    ("x", "density"),
    [
        (np.random.default_rng(0).normal(size=1000), False),
        (np.arange(7), True),
        (np.ones(5), False),
        (np.arange(9, dtype="f4"), True),
    ],
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

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    np.testing.assert_array_equal(h.get(), 10)

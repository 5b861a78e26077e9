"""A handful of every family of kernels on meshes of several hosts; `make test-hosts` runs all of their tests there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from clusters import running_cluster

import shardcall as sc
from shardcall import P

ROW = sc.Mesh(x=8)
GRID = sc.Mesh(a=4, b=2)
# Of 8 devices: two processes have two of these each, four have one each.
SOME = sc.Mesh({"x": 4}, device_ids=[0, 2, 4, 6])


RELAYED = ("--no-shared-memory",)
CLUSTERS = {"2x4": (2, 4, ()), "2x4 relayed": (2, 4, RELAYED), "4x2 relayed": (4, 2, RELAYED)}
"""By name: hosts, devices of each, and the options of their agents."""

pytestmark = [pytest.mark.long, pytest.mark.parametrize("hosts", CLUSTERS, indirect=True, scope="module")]


@pytest.fixture(scope="module")
def hosts(request) -> Iterator[sc.Client]:
    """A client of a server of 8 devices in all."""
    count, devices, agent_options = CLUSTERS[request.param]
    with running_cluster(count, devices, agent_options=agent_options) as cluster, sc.connect(cluster.address) as client:
        yield client


def integers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(float)


X = integers(0, 83, 45)


def test_differences(hosts):
    np.testing.assert_array_equal(hosts.diff(X, n=2, axis=0, prepend=1.0, mesh=ROW).array, np.diff(X, 2, 0, prepend=1))
    np.testing.assert_array_equal(hosts.shift(X, 11, axis=0, mode="periodic", mesh=SOME).array, np.roll(X, 11, 0))


def test_elementwise_reductions_and_layouts(hosts):
    narrow = X.astype(ml_dtypes.bfloat16)
    result = hosts.add(narrow, narrow[0], mesh=GRID, spec=P("b", "a")).array
    np.testing.assert_array_equal(result, narrow + narrow[0], strict=True)
    np.testing.assert_array_equal(hosts.sum(X, axis=0, mesh=GRID, spec=P("a", "b")).array, X.sum(0))
    np.testing.assert_array_equal(hosts.argmax(X, mesh=ROW).array, X.argmax())
    bits = X.astype(ml_dtypes.int4)
    moved = hosts.transpose(bits, mesh=GRID, spec=P("a", "b"), out_spec=P("a", None)).array
    np.testing.assert_array_equal(moved, bits.T, strict=True)


def test_einsum_and_gradient(hosts):
    np.testing.assert_array_equal(hosts.einsum("ij,ik->kj", X, X, mesh=SOME).array, np.einsum("ij,ik->kj", X, X))
    for result, expected in zip(hosts.gradient(X, mesh=GRID, spec=P("a", "b")), np.gradient(X), strict=True):
        np.testing.assert_allclose(result, expected)


def test_scans(hosts):
    np.testing.assert_array_equal(hosts.cumsum(X, 0, mesh=ROW).array, X.cumsum(0))
    window = integers(1, 5)
    result = hosts.convolve(X[:, 0], window, mode="same", mesh=SOME).array
    np.testing.assert_array_equal(result, np.convolve(X[:, 0], window, "same"))


def test_products(hosts):
    y = integers(2, 45, 31)
    result = hosts.matmul(X, y, mesh=GRID, lhs_spec=P("a", "b"), rhs_spec=P("b", None))
    np.testing.assert_array_equal(result.array, X @ y)
    assert result.plan.collectives
    summed = hosts.matmul(X, y, mesh=ROW, lhs_spec=P(None, "x"), rhs_spec=P("x", None), strategy="psum_scatter")
    np.testing.assert_array_equal(summed.array, X @ y)
    assert [collective.opcode for collective in summed.plan.collectives] == [
        "all-to-all"
    ]  # gloo's reduce-scatter is wrong
    ring = hosts.collective_matmul(X, y, axis_name="x", mesh=ROW, strategy="bidirectional_ring")
    np.testing.assert_array_equal(ring.array, X @ y)


def test_values_are_refused_by_hosts_that_see_them(hosts):
    x = np.arange(83, dtype=np.int8) % 5
    y = x - (x == 4) * np.int8(5)
    for mesh in (ROW, SOME, sc.Mesh({"x": 1}, device_ids=[7])):  # the last is another host's than the first
        for keep in (False, True):
            with pytest.raises(sc.InvalidOperandError, match="y holds a negative integer"):
                hosts.power(x, y, mesh=mesh, keep=keep)
        np.testing.assert_array_equal(hosts.power(x, x, mesh=mesh).array, x**x)
    assert not hosts.list()


def test_arrays_larger_than_a_message(hosts):
    large = np.random.default_rng(3).normal(size=(1031, 517))
    np.testing.assert_array_equal(hosts.reshard(large, mesh=ROW, out_spec=P(None, "x")).array, large)


def test_random_arrays_are_the_same_on_every_mesh(hosts):
    drawn = hosts.uniform(7, (83, 5), mesh=ROW).array
    np.testing.assert_array_equal(drawn, hosts.uniform(7, (83, 5)).array)


def test_calls_of_several_streams_are_launched_in_one_order_on_all_hosts(hosts):
    """Their collectives would wait for one another forever otherwise, and a gap in the order ends the epoch."""
    y = integers(5, 45, 16)
    restarts = hosts.usage().mesh.restarts
    expected = {"matmul": X @ y, "sum": X.sum(0), "cumsum": X.cumsum(0)}

    def chain(number: int) -> bool:
        with sc.connect(hosts.address) as client:
            for i in range(8):
                kept = client.put(X, mesh=GRID, spec=P("a", "b"))
                results = {
                    "matmul": client.submit("matmul", kept, y, mesh=GRID, out_specs=[P("b", "a")]),
                    "sum": client.submit("sum", kept, axis=0),
                    "cumsum": client.submit("cumsum", kept, axis=0),
                }
                client.delete(kept)
                name = list(expected)[(number + i) % 3]
                np.testing.assert_array_equal(results[name], expected[name])
            return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(chain, range(4)))
    assert hosts.usage().mesh.restarts == restarts

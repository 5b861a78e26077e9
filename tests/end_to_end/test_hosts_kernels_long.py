"""More families of kernels on meshes of two hosts and of four, with shared memory and without."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.processes import shardcall
from end_to_end.test_hosts_kernels import GRID, ROW, SOME, X, integers

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

on_one = pytest.mark.parametrize("hosts", ["2x4", "4x2 relayed"], indirect=True, scope="module")
on_both = pytest.mark.parametrize("hosts", ["2x4", "2x4 relayed", "4x2 relayed"], indirect=True, scope="module")


@on_one
def test_health_reports_a_host(hosts):
    def health(name: str) -> tuple[int, str]:
        ended = shardcall("health", hosts.address, "--host", name)
        return ended.returncode, ended.stdout + ended.stderr

    assert health("h1") == (0, "ready\n")
    says = f"shardcall: the server at {hosts.address} has had no host 'h9'; see: shardcall status\n"
    assert health("h9") == (1, says)
    for name in ("", "h" * 65):
        code, said = health(name)
        assert code == 2
        assert f"--host is {name!r}; a name has 1 to 64 characters" in said


@on_both
def test_products(hosts):
    y = integers(2, 45, 31)
    result = hosts.matmul(X, y, mesh=GRID, lhs_spec=P("a", "b"), rhs_spec=P("b", None))
    np.testing.assert_array_equal(result.array, X @ y)
    assert result.plan.collectives
    summed = hosts.matmul(X, y, mesh=ROW, lhs_spec=P(None, "x"), rhs_spec=P("x", None), strategy="psum_scatter")
    np.testing.assert_array_equal(summed.array, X @ y)
    # gloo's reduce-scatter is wrong
    assert [collective.opcode for collective in summed.plan.collectives] == ["all-to-all"]
    ring = hosts.collective_matmul(X, y, axis_name="x", mesh=ROW, strategy="bidirectional_ring")
    np.testing.assert_array_equal(ring.array, X @ y)


@on_both
def test_values_are_refused_by_hosts_that_see_them(hosts):
    x = np.arange(83, dtype=np.int8) % 5
    y = x - (x == 4) * np.int8(5)
    for mesh in (ROW, SOME, sc.Mesh({"x": 1}, device_ids=[7])):  # the last is another host's than the first
        for keep in (False, True):
            with pytest.raises(sc.InvalidOperandError, match="y holds a negative integer"):
                hosts.power(x, y, mesh=mesh, keep=keep)
        np.testing.assert_array_equal(hosts.power(x, x, mesh=mesh).array, x**x)
    assert not hosts.list()


@on_both
def test_arrays_larger_than_a_message(hosts):
    large = np.random.default_rng(3).normal(size=(1031, 517))
    np.testing.assert_array_equal(hosts.reshard(large, mesh=ROW, out_spec=P(None, "x")).array, large)


@on_one
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

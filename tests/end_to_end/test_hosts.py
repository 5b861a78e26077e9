"""A server of two hosts of four devices: calls across both, a file that both write, and the health of one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.commands import shardcall
from end_to_end.filing import same
from end_to_end.test_hosts_files import Hosts

import shardcall as sc
from shardcall import P

X = np.random.default_rng(0).integers(-4, 5, (13, 3)).astype(float)
LINE, GRID = sc.Mesh(x=8), sc.Mesh(a=4, b=2)
SOME = sc.Mesh({"x": 4}, device_ids=[0, 2, 4, 6])


@pytest.fixture(scope="module")
def hosts(tmp_path_factory) -> Iterator[Hosts]:
    running = Hosts(tmp_path_factory.mktemp("arrays"))
    yield running
    running.end()


def test_calls_across_hosts_are_numpys(hosts):
    client = hosts.client
    same(client.diff(X, axis=0, prepend=1.0, mesh=LINE, spec=P("x", None)).array, np.diff(X, axis=0, prepend=1.0))
    same(client.sum(X, axis=0, mesh=GRID, spec=P("a", "b")).array, X.sum(0))
    same(client.cumsum(X, 0, mesh=SOME, spec=P("x", None)).array, X.cumsum(0))
    product = client.matmul(X, X.T, mesh=GRID, lhs_spec=P("a", "b"), rhs_spec=P("b", None))
    same(product.array, X @ X.T)
    assert product.plan.collectives
    kept = client.put(X, mesh=GRID, spec=P("a", "b"))
    same(client.reshard(kept, mesh=LINE, out_spec=P("x", None), keep=True).array.get(), X)
    same((kept + 1).get(), X + 1)


def test_values_are_refused_by_the_host_that_sees_them(hosts):
    x = np.arange(13, dtype=np.int8) % 5
    y = np.where(np.arange(13) == 12, -1, x).astype(np.int8)
    for keep in (False, True):
        with pytest.raises(sc.InvalidOperandError, match="y holds a negative integer"):
            hosts.client.power(x, y, mesh=LINE, keep=keep)
    same(hosts.client.power(x, x, mesh=LINE).array, x**x)


def test_files_are_written_by_both_hosts_and_outlive_the_mesh(hosts):
    client, x = hosts.client, np.arange(35.0).reshape(7, 5)
    h = client.put(x, mesh=LINE, spec=P("x", None), name="u", durable=True)
    client.save(h, "a.npy")
    same(np.load(hosts.principal_folder / "a.npy"), x)
    hosts.restart_mesh(hosts.kill_worker)
    same(client.load("a.npy", mesh=LINE, spec=P(None, "x")).get(), x)
    same(client.open("u").get(), x)


def test_health_reports_a_host(hosts):
    address = hosts.client.address
    for name, code, says in (
        ("h1", 0, "ready\n"),
        ("h9", 1, f"shardcall: the server at {address} has had no host 'h9'; see: shardcall status\n"),
    ):
        ended = shardcall("health", address, "--host", name)
        assert (ended.returncode, ended.stdout + ended.stderr) == (code, says)
    ended = shardcall("health", address, "--host", "h" * 65)
    assert (ended.returncode, "a name has 1 to 64 characters" in ended.stderr) == (2, True)

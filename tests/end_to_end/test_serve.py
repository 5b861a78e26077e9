"""`shardcall serve` and what is around it: addresses, settings, health, reflection, the private server."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import open_channel
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from servers import ServerProcess, running_server

import shardcall as sc


@pytest.fixture(scope="module")
def unusual() -> Iterator[ServerProcess]:
    """A server with a default mesh that was set, and whose allocator is left alone."""
    with running_server(
        "--mesh", "a=4,b=2", "--no-tune-allocator", why="its mesh and its allocator are set"
    ) as running:
        yield running


def shardcall(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardcall.cli", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )


@pytest.mark.parametrize(
    "host", ["::", *(pytest.param(host, marks=pytest.mark.long) for host in ("0.0.0.0", "192.0.2.7"))]
)
def test_an_address_that_others_reach_must_be_asked_for(host):
    said = shardcall("serve", "--port", "0", "--host", host)
    assert said.returncode == 2
    assert "--insecure-allow-remote" in said.stderr


def test_the_server_listens_on_both_loopbacks_and_nowhere_else(server):
    port = int(server.address.rpartition(":")[2])
    listening = set()
    for table, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        for row in Path(table).read_text().splitlines()[1:]:
            address, state = row.split()[1], row.split()[3]
            if state == "0A" and int(address.rpartition(":")[2], 16) == port:
                groups = re.findall("........", address.rpartition(":")[0])
                packed = b"".join(bytes.fromhex(group)[::-1] for group in groups)
                listening.add(socket.inet_ntop(family, packed).removeprefix("::ffff:"))
    assert "127.0.0.1" in listening
    assert listening <= {"127.0.0.1", "::1"}


def test_the_default_mesh_may_be_set(unusual):
    with sc.connect(unusual.address) as client:
        assert client.server_info().default_mesh == sc.Mesh(a=4, b=2)
        x = np.random.default_rng(0).standard_normal((16, 8))
        result = client.diff(x, axis=1, spec=sc.P("a", "b"))
        np.testing.assert_array_equal(result.array, np.diff(x, axis=1))


def test_the_mesh_left_open_follows_specs_and_size(client):
    small, large = np.zeros((8, 8)), np.zeros((512, 512))
    assert client.plan("diff", small).mesh == sc.Mesh({"x": 1}, device_ids=[0])
    assert client.plan("diff", small, spec=sc.P("x")).mesh.size == 8
    assert client.plan("diff", large).mesh.size == 8


def test_reflection_lists_the_services(server):
    with open_channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=60)
    names = {service.name for service in answer.list_services_response.service}
    assert {"shardcall.v1.KernelService", "shardcall.v1.ServerInfoService", "grpc.health.v1.Health"} <= names


def test_the_allocator_is_set_for_both_processes_by_default(server, unusual):
    def tunables(pid: int) -> bool:
        return b"glibc.malloc.mmap_threshold" in Path(f"/proc/{pid}/environ").read_bytes()

    assert all(tunables(pid) for pid in [server.process.pid, *server.worker_pids()])
    assert not any(tunables(pid) for pid in [unusual.process.pid, *unusual.worker_pids()])


def test_the_front_end_never_imports_jax(server):
    mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "jaxlib" not in mapped
    (worker,) = server.worker_pids()
    assert "jaxlib" in Path(f"/proc/{worker}/maps").read_text()

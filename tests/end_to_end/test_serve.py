"""`shardcall serve` and what is around it: addresses, settings, health, reflection, the private server."""

from __future__ import annotations

import json
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
from end_to_end.processes import wait_for
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from servers import ServerProcess, running_server

import shardcall as sc


@pytest.fixture(scope="module")
def unusual() -> Iterator[ServerProcess]:
    """A server with a default mesh that was set, and whose allocator is left alone."""
    with running_server("--mesh", "a=4,b=2", "--no-tune-allocator") as running:
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


def test_a_port_in_use_is_reported_with_its_holder_and_a_remedy(server):
    port = server.address.rpartition(":")[2]
    said = shardcall("serve", "--port", port)
    assert said.returncode == 2
    assert re.search(rf"port {port} is in use by \S+ \(process {server.process.pid}\)", said.stderr)
    assert "--port" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "host", ["::", *(pytest.param(host, marks=pytest.mark.long) for host in ("0.0.0.0", "192.0.2.7"))]
)
def test_an_address_that_others_reach_must_be_asked_for(host):
    said = shardcall("serve", "--port", "0", "--host", host)
    assert said.returncode == 2
    assert "--insecure-allow-remote" in said.stderr


def test_an_address_of_another_host_is_refused_with_the_reason():
    said = shardcall("serve", "--port", "0", "--host", "192.0.2.7", "--insecure-allow-remote")
    assert said.returncode == 2
    assert "an address of this host" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--devcies", "8"], {}, "--devices"),
        (["--devices", "many"], {}, "devices"),
        (["--port", "x"], {"SHARDCALL_DEVCIES": "8"}, "reads the environment variable SHARDCALL_DEVCIES; did you mean"),
        (["--config", "/nonexistent/server.toml"], {}, "cannot be read"),
        (["--mesh", "x:8"], {}, "x=4,y=2"),
        (["--mesh", "x=16", "--devices", "8"], {}, "needs 16 devices"),
        (["--mesh", "x=2,x=2"], {}, "a different name"),
        (["--max-call-bytes", "4194304", "--max-bytes-in-flight", "1048576"], {}, "max_bytes_in_flight"),
    ],
    ids=["option", "value", "variable", "file", "mesh", "large mesh", "mesh axis twice", "bytes"],
)
def test_a_setting_that_cannot_be_is_refused_in_a_line(arguments, environment, says):
    said = shardcall("serve", "--port", "0", *arguments, **environment)
    assert said.returncode == 2
    assert says in said.stderr
    assert "Traceback" not in said.stderr


def test_a_mesh_that_cannot_start_is_reported_and_ends_the_server():
    said = shardcall("serve", "--port", "0", "--platform", "tpu", "--start-timeout-s", "600")
    assert said.returncode == 1
    assert re.search("^shardcall: the mesh could not be started: .*tpu.*$", said.stderr.splitlines()[-1])
    assert "started again" not in said.stderr + said.stdout  # what fails once fails again


def test_a_mesh_larger_than_the_devices_is_reported_at_the_start():
    said = shardcall("serve", "--port", "0", "--platform", "cpu", "--mesh", "x=3")
    assert said.returncode == 2
    assert "needs 3 devices, and there are 1" in said.stderr


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


def test_the_exit_status_is_the_health(server):
    assert shardcall("health", server.address).stdout == "ready\n"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        said = shardcall("health", f"127.0.0.1:{unused.getsockname()[1]}")
    assert said.returncode == 1
    assert "no server answers" in said.stderr


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


def test_a_private_server_ends_with_its_owner():
    script = (
        "import os, shardcall as sc\n"
        "client = sc.local(devices=2)\n"
        "print(client.diff([1.0, 4.0, 9.0]).array.tolist(), client.address, flush=True)\n"
        "os._exit(9)\n"  # no clean-up of any kind
    )
    owner = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert owner.returncode == 9, owner.stderr
    values, address = owner.stdout.rsplit(" ", 1)
    assert json.loads(values) == [3.0, 5.0]
    host, port = address.strip().rsplit(":", 1)

    def gone() -> bool:
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return True
        return False

    wait_for(gone)


def test_help_lists_every_command_and_setting():
    assert {"serve", "info", "health"} <= set(re.findall(r"\w+", shardcall("--help").stdout))
    said = shardcall("serve", "--help", COLUMNS="200").stdout
    assert "--max-call-bytes" in said
    assert "--insecure-allow-remote" in said

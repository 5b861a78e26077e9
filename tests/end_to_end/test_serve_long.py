"""`shardcall serve` with settings of its own and with wrong ones, its port, its health, and private servers."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.processes import shardcall, wait_for
from end_to_end.test_serve import tunes_allocator
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import aio

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def unusual() -> Iterator[ServerProcess]:
    """A server with a default mesh that was set, and whose allocator is left alone."""
    with running_server(
        "--mesh", "a=4,b=2", "--no-tune-allocator", why="its mesh and its allocator are set"
    ) as running:
        yield running


def test_the_default_mesh_and_the_allocator_may_be_set(unusual):
    with sc.connect(unusual.address) as client:
        assert client.server_info().default_mesh == sc.Mesh(a=4, b=2)
        x = np.random.default_rng(0).standard_normal((16, 8))
        np.testing.assert_array_equal(client.diff(x, axis=1, spec=sc.P("a", "b")).array, np.diff(x, axis=1))
        assert tunes_allocator(unusual) == [False, False]


def test_a_port_in_use_is_reported_with_its_holder_and_a_remedy(server):
    port = server.address.rpartition(":")[2]
    said = shardcall("serve", "--port", port, NAME_OF_TEST="a port in use")
    assert (said.returncode, "Traceback" in said.stderr) == (2, False)
    assert re.search(rf"port {port} is in use by \S+ \(process {server.process.pid}\)", said.stderr)
    assert "--port" in said.stderr
    search = "grep -las 'NAME_OF_TEST=a port in use' /proc/[0-9]*/environ"
    wait_for(
        lambda: not subprocess.run(search, shell=True, stdout=-1, check=False).stdout
    )  # the first worker has ended


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--devcies", "8"], {}, "--devices"),
        (["--port", "x"], {"SHARDCALL_DEVCIES": "8"}, "reads the environment variable SHARDCALL_DEVCIES; did you mean"),
        (["--config", "/nonexistent/server.toml"], {}, "cannot be read"),
        (["--mesh", "x=16", "--devices", "8"], {}, "needs 16 devices"),
        (["--platform", "cpu", "--mesh", "x=3"], {}, "needs 3 devices, and there are 1"),
        (["--mesh", "x=2,x=2"], {}, "a different name"),
        (["--max-call-bytes", "4194304", "--max-bytes-in-flight", "1048576"], {}, "max_bytes_in_flight"),
        (["--host", "0.0.0.0"], {}, "--insecure-allow-remote"),
        (["--host", "192.0.2.7", "--insecure-allow-remote"], {}, "an address of this host"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_setting_that_cannot_be_is_refused_in_a_line(arguments, environment, says):
    said = shardcall("serve", "--port", "0", *arguments, **environment)
    assert (said.returncode, "Traceback" in said.stderr) == (2, False)
    assert says in said.stderr


def test_a_mesh_that_cannot_start_is_reported_and_ends_the_server():
    said = shardcall("serve", "--port", "0", "--platform", "tpu", "--start-timeout-s", "600")
    assert said.returncode == 1
    assert re.search("^shardcall: the mesh could not be started: .*tpu.*$", said.stderr.splitlines()[-1])
    assert "started again" not in said.stderr + said.stdout  # what fails once fails again


def test_the_exit_status_is_the_health(server):
    assert shardcall("health", server.address).stdout == "ready\n"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        said = shardcall("health", f"127.0.0.1:{unused.getsockname()[1]}")
    assert said.returncode == 1
    assert "no server answers" in said.stderr


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


def test_a_private_server_ends_with_its_client() -> None:
    async def use() -> str:
        async with aio.local(devices=1) as client:
            assert (await client.diff([1.0, 4.0])).array == [3.0]
            return client.address

    address = asyncio.run(use())
    with pytest.raises(sc.ServerUnavailableError):
        sc.connect(address)

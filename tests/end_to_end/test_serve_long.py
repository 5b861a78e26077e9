"""The tests of `test_serve.py` that take long."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys

import pytest
from end_to_end.processes import wait_for
from end_to_end.test_serve import shardcall

pytestmark = pytest.mark.long


def test_a_port_in_use_is_reported_with_its_holder_and_a_remedy(server):
    port = server.address.rpartition(":")[2]
    said = shardcall("serve", "--port", port)
    assert said.returncode == 2
    assert re.search(rf"port {port} is in use by \S+ \(process {server.process.pid}\)", said.stderr)
    assert "--port" in said.stderr
    assert "Traceback" not in said.stderr


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


def test_help_lists_every_command_and_setting():
    assert {"serve", "info", "health"} <= set(re.findall(r"\w+", shardcall("--help").stdout))
    said = shardcall("serve", "--help", COLUMNS="200").stdout
    assert "--max-call-bytes" in said
    assert "--insecure-allow-remote" in said

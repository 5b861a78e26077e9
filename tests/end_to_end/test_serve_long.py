"""`shardcall serve` and `shardcall health` as processes: what they refuse, and their exit statuses."""

from __future__ import annotations

import re
import socket

import pytest
from end_to_end.commands import shardcall

pytestmark = pytest.mark.long


def test_a_port_in_use_is_reported_with_its_holder_and_a_remedy(server):
    port = server.address.rpartition(":")[2]
    said = shardcall("serve", "--port", port)
    assert said.returncode == 2
    assert re.search(rf"port {port} is in use by \S+ \(process {server.process.pid}\)", said.stderr)
    assert "--port" in said.stderr
    assert "Traceback" not in said.stderr


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
        (["--platform", "cpu", "--mesh", "x=3"], {}, "needs 3 devices, and there are 1"),
        (["--host", "0.0.0.0"], {}, "--insecure-allow-remote"),
        (["--host", "::"], {}, "--insecure-allow-remote"),
        (["--host", "192.0.2.7"], {}, "--insecure-allow-remote"),
        (["--host", "192.0.2.7", "--insecure-allow-remote"], {}, "an address of this host"),
        (["--max-call-bytes", "4194304", "--max-bytes-in-flight", "1048576"], {}, "max_bytes_in_flight"),
    ],
    ids=str,
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


def test_the_exit_status_is_the_health(server):
    assert shardcall("health", server.address).stdout == "ready\n"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        said = shardcall("health", f"127.0.0.1:{unused.getsockname()[1]}")
    assert said.returncode == 1
    assert "no server answers" in said.stderr


def test_help_lists_every_command_and_setting():
    assert {"serve", "info", "health"} <= set(re.findall(r"\w+", shardcall("--help").stdout))
    said = shardcall("serve", "--help").stdout
    assert "--max-call-bytes" in said
    assert "--insecure-allow-remote" in said

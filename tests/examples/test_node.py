"""The client in JavaScript, which knows the protos alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from end_to_end.messages import token_of
from servers import DEVICES, running_server

from shardcall_server.certificate_authority import make_authority

pytestmark = pytest.mark.long

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "node"


@pytest.fixture(scope="module")
def node() -> str:
    """The interpreter; the packages of the lock are beside the example."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        if os.environ.get("REQUIRE_ALL_TESTS") == "1":
            pytest.fail("REQUIRE_ALL_TESTS=1, and there is no node and npm")
        pytest.skip("needs node and npm")
    command = ["make", "--no-print-directory", "node-example"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(command, cwd=FOLDER.parents[1], check=True, timeout=300, env=environment)
    return node


def run(node: str, address: str, token: str, authority: str = "") -> subprocess.CompletedProcess[str]:
    command = [node, "client.js", address]
    environment = {**os.environ, "SHARDCALL_TOKEN": token, "SHARDCALL_CA_CERTIFICATE": authority}
    return subprocess.run(
        command, cwd=FOLDER, capture_output=True, text=True, timeout=300, env=environment, check=False
    )


def test_the_client_in_javascript_calls_a_kernel_and_gets_the_reason_of_a_refusal(server, node):
    ended = run(node, server.address, token_of("runner"))
    assert ended.returncode == 0, ended.stderr
    assert f"{server.address} has {DEVICES} cpu devices" in ended.stdout
    assert ended.stdout.endswith("the result is right\n")
    refused = run(node, server.address, "")
    assert refused.returncode == 1
    assert refused.stderr.startswith("UNAUTHENTICATED: the call has no token")
    assert "authorization: Bearer <token>" in refused.stderr


def test_the_authority_is_a_path_or_the_content_of_a_file(node, tmp_path):
    make_authority(tmp_path / "trust", [], 30)
    file = tmp_path / "trust/ca.pem"
    flags = ("--tls-cert", str(tmp_path / "trust/server.pem"), "--tls-key", str(tmp_path / "trust/server.key"))
    with running_server(*flags, devices=2, why="it speaks TLS") as running:
        for authority in (str(file), file.read_text()):
            ended = run(node, running.address, token_of("runner"), authority)
            assert ended.stdout.endswith("the result is right\n"), ended.stderr

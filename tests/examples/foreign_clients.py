"""Checks of clients in other languages, which are programs that take an address."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from end_to_end.messages import token_of
from servers import DEVICES, ServerProcess, running_server

from shardcall_server.certificate_authority import make_authority


def needs(missing: Sequence[str]) -> None:
    """Skips a test if tools are missing; fails it if all tests are requested."""
    if missing and os.environ.get("REQUIRE_ALL_TESTS") == "1":
        pytest.fail(f"REQUIRE_ALL_TESTS=1, and there is no {', '.join(missing)}")
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def run(
    client: Sequence[str | Path], address: str, token: str, authority: str = ""
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHARDCALL_TOKEN": token, "SHARDCALL_CA_CERTIFICATE": authority}
    command = [*client, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


def check_calls(client: Sequence[str | Path], server: ServerProcess, refusal: str) -> None:
    """Checks that a program calls a kernel, and says why it is refused without a token."""
    ended = run(client, server.address, token_of("runner"))
    assert ended.returncode == 0, ended.stderr
    assert f"{server.address} has {DEVICES} cpu devices" in ended.stdout
    assert ended.stdout.endswith("the result is right\n")
    refused = run(client, server.address, "")
    assert refused.returncode == 1
    assert refused.stderr.startswith(refusal)


def check_authority(client: Sequence[str | Path], folder: Path) -> None:
    """Checks that a program takes a certificate authority as a path and as the content of a file."""
    make_authority(folder / "trust", [], 30)
    file = folder / "trust/ca.pem"
    flags = ("--tls-cert", str(folder / "trust/server.pem"), "--tls-key", str(folder / "trust/server.key"))
    with running_server(*flags, devices=2, why="it speaks TLS") as running:
        for authority in (str(file), file.read_text()):
            ended = run(client, running.address, token_of("runner"), authority)
            assert ended.stdout.endswith("the result is right\n"), ended.stderr

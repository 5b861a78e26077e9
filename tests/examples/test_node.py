"""The client in JavaScript, which knows the protos alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from examples.foreign_clients import check_authority, check_calls, needs

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def client() -> list[str | Path]:
    """The command; the packages of the lock are beside the example."""
    needs([tool for tool in ("node", "npm") if shutil.which(tool) is None])
    command = ["make", "--no-print-directory", "node-example"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, env=environment)
    return ["node", ROOT / "examples/node/client.js"]


def test_the_client_in_javascript_calls_a_kernel_and_gets_the_reason_of_a_refusal(server, client):
    check_calls(client, server, "UNAUTHENTICATED: the call has no token")


def test_the_authority_is_a_path_or_the_content_of_a_file(client, tmp_path):
    check_authority(client, tmp_path)

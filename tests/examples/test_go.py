"""The client in Go, through stubs that protoc generates, with the packages of Debian."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from examples.foreign_clients import check_authority, check_calls, needs

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path("/usr/share/gocode")
"""The folder of the sources of Debian's packages of Go, such as golang-google-grpc-dev."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program; the first build compiles gRPC."""
    tools = ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    sources = {
        "src/google.golang.org/grpc": "golang-google-grpc-dev",
        "src/github.com/golang/protobuf/internal/gengogrpc": "golang-github-golang-protobuf-1-5-dev",  # not in 1.3
    }
    needs(missing + [package for folder, package in sources.items() if not (PACKAGES / folder).exists()])
    folder = tmp_path_factory.mktemp("go")
    (folder / "src").mkdir()
    protos = sorted(str(proto) for proto in (ROOT / "protos/shardcall/v1").glob("*.proto"))
    outputs = (f"--go_out={folder}/src", f"--go-grpc_out={folder}/src")
    subprocess.run(["protoc", "-I", str(ROOT / "protos"), *outputs, *protos], check=True, timeout=100)
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{folder}:{PACKAGES}", "GOFLAGS": "-p=2"}
    command = ["go", "build", "-o", str(folder / "client"), str(ROOT / "examples/go/client.go")]
    subprocess.run(command, check=True, timeout=500, env=environment)
    return folder / "client"


def test_the_client_in_go_calls_a_kernel_and_gets_the_reason_of_a_refusal(server, client):
    check_calls([client], server, "Unauthenticated: the call has no token")


def test_the_authority_is_a_path_or_the_content_of_a_file(client, tmp_path):
    check_authority([client], tmp_path)

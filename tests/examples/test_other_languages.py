"""The clients in Go and JavaScript, which know the protos alone: programs that take an address."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from end_to_end.messages import token_of
from servers import DEVICES, ServerProcess, running_server

from shardcall_server.certificate_authority import make_authority

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path("/usr/share/gocode")
"""The folder of the sources of Debian's packages of Go, such as golang-google-grpc-dev."""
Command = Sequence[str | Path]


def needs(missing: Sequence[str]) -> None:
    """Skips a test if tools are missing; fails it if all tests are requested."""
    if missing and os.environ.get("REQUIRE_ALL_TESTS") == "1":
        pytest.fail(f"REQUIRE_ALL_TESTS=1, and there is no {', '.join(missing)}")
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")


def go_client(folder: Path) -> Command:
    """Builds the program through stubs that protoc generates; the first build compiles gRPC."""
    tools = ("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    sources = {
        "src/google.golang.org/grpc": "golang-google-grpc-dev",
        "src/github.com/golang/protobuf/internal/gengogrpc": "golang-github-golang-protobuf-1-5-dev",  # not in 1.3
    }
    needs(missing + [package for source, package in sources.items() if not (PACKAGES / source).exists()])
    (folder / "src").mkdir()
    protos = sorted(str(proto) for proto in (ROOT / "protos/shardcall/v1").glob("*.proto"))
    outputs = (f"--go_out={folder}/src", f"--go-grpc_out={folder}/src")
    subprocess.run(["protoc", "-I", str(ROOT / "protos"), *outputs, *protos], check=True, timeout=100)
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{folder}:{PACKAGES}", "GOFLAGS": "-p=2"}
    command = ["go", "build", "-o", str(folder / "client"), str(ROOT / "examples/go/client.go")]
    subprocess.run(command, check=True, timeout=500, env=environment)
    return [folder / "client"]


def javascript_client(_: Path) -> Command:
    """The packages of the lock are put beside the example."""
    needs([tool for tool in ("node", "npm") if shutil.which(tool) is None])
    command = ["make", "--no-print-directory", "node-example"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, env=environment)
    return ["node", ROOT / "examples/node/client.js"]


CLIENTS: Mapping[str, tuple[Callable[[Path], Command], str]] = {
    "go": (go_client, "Unauthenticated: the call has no token"),
    "javascript": (javascript_client, "UNAUTHENTICATED: the call has no token"),
}
"""The function that builds the program of each language, and the text by which it reports a call without a token."""


@pytest.fixture(scope="module", params=CLIENTS)
def client_and_refusal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Command, str]:
    build, refusal = CLIENTS[request.param]
    return build(tmp_path_factory.mktemp(request.param)), refusal


def run(client: Command, address: str, token: str, authority: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SHARDCALL_TOKEN": token, "SHARDCALL_CA_CERTIFICATE": authority}
    return subprocess.run([*client, address], capture_output=True, text=True, timeout=300, env=environment, check=False)


def test_a_client_calls_a_kernel_and_gets_the_reason_of_a_refusal(
    server: ServerProcess, client_and_refusal: tuple[Command, str]
) -> None:
    client, refusal = client_and_refusal
    ended = run(client, server.address, token_of("runner"))
    assert ended.returncode == 0, ended.stderr
    assert f"{server.address} has {DEVICES} cpu devices" in ended.stdout
    assert ended.stdout.endswith("the result is right\n")
    refused = run(client, server.address, "")
    assert refused.returncode == 1
    assert refused.stderr.startswith(refusal)


def test_the_authority_is_a_path_or_the_content_of_a_file(
    client_and_refusal: tuple[Command, str], tmp_path: Path
) -> None:
    make_authority(tmp_path / "trust", [], 30)
    file = tmp_path / "trust/ca.pem"
    flags = ("--tls-cert", str(tmp_path / "trust/server.pem"), "--tls-key", str(tmp_path / "trust/server.key"))
    with running_server(*flags, devices=2, why="it speaks TLS") as running:
        for authority in (str(file), file.read_text()):
            ended = run(client_and_refusal[0], running.address, token_of("runner"), authority)
            assert ended.stdout.endswith("the result is right\n"), ended.stderr

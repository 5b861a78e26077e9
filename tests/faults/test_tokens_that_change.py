"""Tokens that are added and revoked while the server serves, and the files and logs that show them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.inference_requests import Stub, arrays_of, connected, infer, pb, shared_file
from end_to_end.messages import chunk, header, open_channel
from end_to_end.processes import wait_for
from servers import ServerProcess, running_server
from typer.testing import CliRunner

import shardcall as sc
from shardcall.cli.app import make_app
from shardcall.v1 import (
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
)
from shardcall_core.wire import token_file


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state" / "token"


@dataclass(frozen=True)
class TokenServer:
    """A server, its token file, and its log."""

    server: ServerProcess
    path: Path
    log: Path

    def refusals(self) -> list[dict]:
        """The server's log lines about files that it refused."""
        return events(self.log, "invalid token file ignored")


@pytest.fixture(scope="module")
def serving(tmp_path_factory) -> Iterator[TokenServer]:
    folder = tmp_path_factory.mktemp("served")
    path, log = folder / "state" / "token", folder / "log"
    token_file.create(str(path), [(user := token_file.Entry.make(token_file.user_name(), token_file.SCOPES))])
    options = ("--token-file", str(path), "--log-level", "debug", "--shared-memory-regions")
    with running_server(*options, devices=1, log=log) as server:
        yield TokenServer(server, path, log)
        server.process.terminate()
        said = server.process.stdout.read()
        assert "generated" not in said, "it found the token"
        assert user.token not in said + log.read_text()


@pytest.fixture
def served(serving) -> TokenServer:
    """A server with one token, its owner's."""
    user = token_file.Entry.make(token_file.user_name(), token_file.SCOPES)
    token_file.replace(str(serving.path), [user])
    wait_for(lambda: is_accepted(serving.server, user.token))
    return serving


def shardcall_token(path: Path, *arguments: str) -> str:
    ended = CliRunner().invoke(make_app(), ["token", *arguments, "--token-file", str(path)])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def is_accepted(server: ServerProcess, token: str) -> bool:
    with open_channel(server.address, token=token) as channel:
        stub = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        asked = stub.GetServerInfo.future(server_info_service_pb2.GetServerInfoRequest(), timeout=60)
        assert asked.code() in {grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED}, asked
        return asked.code() is grpc.StatusCode.OK


def events(log: Path, says: str) -> list[dict]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if says in line["event"]]


def test_a_token_is_added_and_removed_without_a_restart(served):
    server, path = served.server, served.path
    shardcall_token(path, "add", "bob", "--scopes", "run")
    token = shardcall_token(path, "show", "bob").strip()
    wait_for(lambda: is_accepted(server, token))
    with (
        sc.connect(server.address, token=token) as client,
        sc.connect(server.address, token=token, call_stream=False) as unary,
    ):
        for one in (client, unary):
            np.testing.assert_array_equal(one.diff([1.0, 4.0]).array, [3.0])
        assert "bob: run" in shardcall_token(path)
        assert token not in shardcall_token(path)
        assert shardcall_token(path, "remove", "bob") == "removed bob\n"
        wait_for(lambda: not is_accepted(server, token))
        for one in (client, unary):
            with pytest.raises(sc.AccessDeniedError, match="was removed"):
                one.diff([1.0, 4.0])
    assert is_accepted(server, token_file.read(str(path))[0].token)


def test_a_call_in_progress_is_answered_after_its_token_was_removed(served):
    server, path = served.server, served.path
    bob, entries, removed = token_file.Entry.make("bob", ["run"]), token_file.read(str(path)), threading.Event()
    token_file.replace(str(path), [*entries, bob])
    wait_for(lambda: is_accepted(server, bob.token))

    def upload() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([4, 100])
        removed.wait(60)
        yield chunk(0, 0, 3200)

    (admin,) = token_file.read(token_file.admin_path(str(path)))
    with open_channel(server.address, token=bob.token) as channel, sc.connect(server.address, token=admin.token) as one:
        answers = kernel_service_pb2_grpc.KernelServiceStub(channel).ExecuteStream(upload(), timeout=120)
        wait_for(lambda: one.usage().calls == 1)
        token_file.replace(str(path), entries)
        wait_for(lambda: not is_accepted(server, bob.token))
        removed.set()
        assert [message.WhichOneof("message") for message in answers] == ["header", "chunk", "timing"]


def test_a_principal_whose_token_is_new_has_its_arrays_still(served):
    server, path = served.server, served.path
    old, entries = token_file.Entry.make("bob", ["run", "arrays"]), token_file.read(str(path))
    token_file.replace(str(path), [*entries, old])
    wait_for(lambda: is_accepted(server, old.token))
    new = token_file.Entry.make("bob", ["run", "arrays"])
    with sc.connect(server.address, token=old.token) as before:
        kept = before.put(np.arange(4.0))
        token_file.replace(str(path), [*entries, new])
        wait_for(lambda: is_accepted(server, new.token) and not is_accepted(server, old.token))
        with sc.connect(server.address, token=new.token) as after:
            np.testing.assert_array_equal(after.get(kept.handle), np.arange(4.0))


def _damage(path: Path) -> None:
    path.write_text("half a li")


def _expose(path: Path) -> None:
    path.chmod(0o644)


@pytest.mark.long
@pytest.mark.parametrize("harm", [_damage, _expose, Path.unlink])
def test_a_file_that_cannot_be_taken_leaves_the_tokens_as_they_were(served, harm: Callable):
    server, path = served.server, served.path
    kept, before = token_file.read(str(path)), len(served.refusals())
    harm(path)
    wait_for(lambda: len(served.refusals()) > before)
    assert is_accepted(server, kept[0].token)
    path.unlink(missing_ok=True)
    new = token_file.Entry.make("carol", ["run"])
    token_file.create(str(path), [new])
    wait_for(lambda: is_accepted(server, new.token))
    assert not is_accepted(server, kept[0].token)
    (refusal,) = served.refusals()[before:]
    assert kept[0].token not in str(refusal)


@pytest.mark.long
def test_servers_of_one_user_know_the_same_file(path, server_factory):
    first, second = server_factory("--token-file", str(path)), server_factory("--token-file", str(path))
    (user,) = token_file.read(str(path))
    assert is_accepted(first, user.token)
    assert is_accepted(second, user.token)


def test_the_token_of_the_environment_is_the_only_one(monkeypatch):
    token = "of-the-environment-" + "e" * 20
    monkeypatch.setenv("SHARDCALL_TOKEN", token)
    with running_server(devices=1) as server:
        assert is_accepted(server, token)
        assert not is_accepted(server, token_file.read(os.environ["SHARDCALL_TOKEN_FILE"])[0].token)
        with sc.connect(server.address) as client:
            assert client.usage().descriptors
        for pid in server.worker_pids():
            assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_token_stands_in_its_file_and_nowhere_else(path, tmp_path):
    log = tmp_path / "log"
    with running_server("--token-file", str(path), "--log-level", "debug", devices=1, log=log) as server:
        token, admin = (entry.token for entry in token_file.read_both(str(path)))
        with sc.connect(server.address, token=token) as client:
            client.put(np.arange(4.0)).delete()
            with pytest.raises(sc.ShardcallError) as caught:
                client.call("nothing")
            assert token not in f"{client!r}{caught.value!r}{caught.value}{caught.value.metadata}"
        assert not is_accepted(server, token + "x")
        for pid in [server.process.pid, *server.worker_pids()]:
            assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        server.process.terminate()
        said = server.process.stdout.read()
    assert f"generated a token in {path}" in said
    assert not any(secret in said + log.read_text() for secret in (token, admin))


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("alice run 0123456789abcdef", 0o644, "chmod 600"),
        pytest.param("nonsense", 0o600, "NAME SCOPES TOKEN", marks=pytest.mark.long),
    ],
)
def test_a_server_does_not_start_with_a_file_that_cannot_be_used(path, text, mode, says):
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(mode)
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--token-file", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert text not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "variable", "says"),
    [
        pytest.param(["--no-auth", "--host", "0.0.0.0"], "", "insecure-allow-remote", marks=pytest.mark.long),
        (["--token", "0123456789abcdef"], "", "No such option"),
        ([], "no token", "is not shown"),
    ],
)
def test_settings_that_would_give_a_token_away_are_refused(arguments, variable, says):
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", *arguments]
    environment = {**os.environ, "SHARDCALL_TOKEN": variable}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert not variable or variable not in ended.stderr


def test_models_regions_and_idle_streams_end_with_the_token(served):
    server, path = served.server, served.path
    bob, entries = token_file.Entry.make("bob", ["run", "arrays"]), token_file.read(str(path))
    token_file.replace(str(path), [*entries, bob])
    wait_for(lambda: is_accepted(server, bob.token))
    idle, running = threading.Event(), infer("sum", {"x": np.arange(4.0)})

    def requests() -> Iterator[pb.ModelInferRequest]:
        yield running
        idle.wait(60)

    with (
        shared_file(bytes(64)) as file,
        connected(server.address, token=bob.token) as stub,
        connected(server.address, token=entries[0].token) as other,
    ):
        with sc.connect(server.address, token=bob.token) as client:
            client.publish(lambda x: x + 1, "m", sc.Array((4,), "float64"), shared=True)
        stub.SystemSharedMemoryRegister(
            pb.SystemSharedMemoryRegisterRequest(name="r", key=file.name, byte_size=64), timeout=30
        )
        shared = infer("bob/m", {"x": np.arange(4.0)})
        assert arrays_of(other.ModelInfer(shared, timeout=60))["result0"].tolist() == [1, 2, 3, 4]
        stream = stub.ModelStreamInfer(requests(), timeout=60)
        assert not next(stream).error_message
        token_file.replace(str(path), entries)
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        idle.set()
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "was removed" in ended.value.details()
        wait_for(lambda: status_of(other, shared) is grpc.StatusCode.NOT_FOUND)
        wait_for(lambda: not has_open(server, file.name))  # some seconds later
        new = token_file.Entry.make("bob", ["run", "arrays"])
        token_file.replace(str(path), [*entries, new])
        wait_for(lambda: is_accepted(server, new.token))
        with connected(server.address, token=new.token) as again, sc.connect(server.address, token=new.token) as client:
            assert not again.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(), timeout=30).regions
            assert client.models() == []


def has_open(server: ServerProcess, name: str) -> bool:
    """Returns whether a server has a file of this name open."""
    targets = []
    for entry in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets.append(os.readlink(entry))
    return any(target.endswith(name) for target in targets)


def status_of(stub: Stub, request: pb.ModelInferRequest) -> grpc.StatusCode:
    try:
        stub.ModelInfer(request, timeout=30)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK

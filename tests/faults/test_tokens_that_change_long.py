"""Token files that cannot be used, where tokens stand, and what ends with them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.inference_requests import Stub, arrays_of, connected, infer, pb, shared_file
from end_to_end.processes import wait_for
from faults.token_servers import is_accepted
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall_core.wire import token_file

pytestmark = pytest.mark.long


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state" / "token"


def _damage(path: Path) -> None:
    path.write_text("half a li")


def _expose(path: Path) -> None:
    path.chmod(0o644)


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


def test_servers_of_one_user_know_the_same_file(path, server_factory):
    first, second = (server_factory("--token-file", str(path), why="they share a file of tokens") for _ in range(2))
    (user,) = token_file.read(str(path))
    assert is_accepted(first, user.token)
    assert is_accepted(second, user.token)


def test_the_token_of_the_environment_is_the_only_one(monkeypatch):
    token = "of-the-environment-" + "e" * 20
    monkeypatch.setenv("SHARDCALL_TOKEN", token)
    with running_server(devices=1, why="its token is in its environment") as server:
        assert is_accepted(server, token)
        assert not is_accepted(server, token_file.read(os.environ["SHARDCALL_TOKEN_FILE"])[0].token)
        with sc.connect(server.address) as client:
            assert client.usage().descriptors
        for pid in server.worker_pids():
            assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_token_stands_in_its_file_and_nowhere_else(path, tmp_path):
    log = tmp_path / "log"
    flags = ("--token-file", str(path), "--log-level", "debug")
    with running_server(*flags, devices=1, log=log, why="it makes its tokens") as server:
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
    [("alice run 0123456789abcdef", 0o644, "chmod 600"), ("nonsense", 0o600, "NAME SCOPES TOKEN")],
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
        (["--no-auth", "--host", "0.0.0.0"], "", "insecure-allow-remote"),
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

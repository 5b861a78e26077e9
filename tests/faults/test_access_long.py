"""Servers with tokens, users and certificates of their own: who gets in, where tokens are, and what ends with them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.inference_requests import arrays_of, connected, infer, pb, shared_file
from end_to_end.messages import call, open_channel, operand
from end_to_end.processes import wait_for
from faults.raw_connections import links
from faults.test_access import UNAUTHENTICATED, WRONG, only_root, outcome
from faults.test_tls import Trust, computes_rightly, refusal
from faults.token_servers import is_accepted
from servers import ServerProcess

import shardcall as sc
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.wire import token_file

pytestmark = pytest.mark.long


def test_who_is_not_asked_is_let_in_on_loopback_only(server_factory):
    server = server_factory("--no-auth", devices=1, why="it asks for no token")
    with open_channel(server.address, token="") as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        assert stub.Plan(kernel_service_pb2.PlanRequest(call=call(), operands=[operand(np.ones(4)).type]), timeout=60)
    with sc.connect(server.address, token=WRONG) as client:
        x = client.put(np.arange(4.0))
        np.testing.assert_array_equal(x.get(), np.arange(4.0))


def test_a_private_server_knows_its_owner_alone():
    with sc.local(devices=1) as client:
        np.testing.assert_array_equal(client.diff([1.0, 4.0]).array, [3.0])
        with pytest.raises(sc.AccessDeniedError) as caught:
            sc.connect(client.address)
    assert "no server of this user on this machine that reads token files listens at" in caught.value.message


def test_floods_of_wrong_tokens_fill_no_log_and_block_no_others(server_factory, tmp_path):
    server = server_factory(devices=1, log=tmp_path / "log", why="its log is looked at")
    with sc.connect(server.address) as client, open_channel(server.address, token=WRONG) as channel:
        client.diff([1.0, 4.0])
        begin = channel.unary_unary("/shardcall.v1.KernelService/Execute")
        began = time.monotonic()
        for _ in range(200):
            asked = [begin.future(b"", timeout=60) for _ in range(50)]
            np.testing.assert_array_equal(client.diff([1.0, 4.0]).array, [3.0])
            # A connection that has sent too much without an admitted call is closed, and opened again.
            assert {call.code() for call in asked} <= {UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE}
        elapsed_s = time.monotonic() - began
    lines = (tmp_path / "log").read_text().count("calls were not admitted")
    assert 1 <= lines <= 2 + elapsed_s / 10


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "state" / "token"


@pytest.mark.parametrize(
    "harm",
    [lambda path: path.write_text("half a li"), lambda path: path.chmod(0o644), Path.unlink],
    ids=["damaged", "exposed", "removed"],
)
def test_a_file_that_cannot_be_taken_leaves_the_tokens_as_they_were(served, harm: Callable[[Path], object]):
    server, path = served.server, served.path
    kept, before = served.user_token(), len(served.refusals())
    harm(path)
    wait_for(lambda: len(served.refusals()) > before)
    assert is_accepted(server, kept)
    path.unlink(missing_ok=True)
    new = token_file.Entry.make("carol", ["run"])
    token_file.create(str(path), [new])
    wait_for(lambda: is_accepted(server, new.token))
    assert not is_accepted(server, kept)
    (refusal,) = served.refusals()[before:]
    assert kept not in str(refusal)


def test_the_token_of_the_environment_is_the_only_one(monkeypatch, server_factory):
    token = "of-the-environment-" + "e" * 20
    monkeypatch.setenv("SHARDCALL_TOKEN", token)
    server = server_factory(devices=1, why="its token is in its environment")
    assert is_accepted(server, token)
    assert not is_accepted(server, token_file.read(os.environ["SHARDCALL_TOKEN_FILE"])[0].token)
    with sc.connect(server.address) as client:
        assert client.usage().descriptors
    for pid in server.worker_pids():
        assert token.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_token_stands_in_its_file_and_nowhere_else(path, tmp_path, server_factory):
    log = tmp_path / "log"
    server = server_factory(
        "--token-file", str(path), "--log-level", "debug", devices=1, log=log, why="it makes its tokens"
    )
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


def serve(*arguments: str, **variables: str) -> str:
    """Returns what a server says that does not start."""
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", *arguments]
    environment = {**os.environ, **variables}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert ended.returncode == 2
    return ended.stderr


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [("alice run 0123456789abcdef", 0o644, "chmod 600"), ("nonsense", 0o600, "NAME SCOPES TOKEN")],
)
def test_a_server_does_not_start_with_a_file_that_cannot_be_used(path, text, mode, says):
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(mode)
    said = serve("--token-file", str(path))
    assert says in said
    assert text not in said


def test_settings_that_would_give_a_token_away_are_refused():
    assert "insecure-allow-remote" in serve("--no-auth", "--host", "0.0.0.0")
    assert "No such option" in serve("--token", "0123456789abcdef")
    said = serve(SHARDCALL_TOKEN="no token")
    assert "is not shown" in said
    assert "no token" not in said


def test_models_regions_and_idle_streams_end_with_the_token(served, silence):
    server, bob = served.server, served.add("bob")
    with (
        shared_file(bytes(64)) as file,
        connected(server.address, token=bob) as stub,
        connected(server.address, token=served.user_token()) as other,
    ):
        with sc.connect(server.address, token=bob) as client:
            client.publish(lambda x: x + 1, "m", sc.Array((4,), "float64"), shared=True)
        stub.SystemSharedMemoryRegister(
            pb.SystemSharedMemoryRegisterRequest(name="r", key=file.name, byte_size=64), timeout=30
        )
        shared = infer("bob/m", {"x": np.arange(4.0)})
        assert arrays_of(other.ModelInfer(shared, timeout=60))["result0"].tolist() == [1, 2, 3, 4]
        stream = stub.ModelStreamInfer(silence(infer("sum", {"x": np.arange(4.0)})), timeout=60)
        assert not next(stream).error_message
        served.remove("bob")
        with pytest.raises(grpc.RpcError) as ended:
            next(stream)
        assert ended.value.code() is UNAUTHENTICATED
        assert "was removed" in ended.value.details()
        wait_for(lambda: other.ModelInfer.future(shared, timeout=30).code() is grpc.StatusCode.NOT_FOUND)
        wait_for(lambda: not has_open(server, file.name))  # some seconds later
        new = served.add("bob")
        with connected(server.address, token=new) as again, sc.connect(server.address, token=new) as client:
            assert not again.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(), timeout=30).regions
            assert client.models() == []


def has_open(server: ServerProcess, name: str) -> bool:
    """Returns whether a server has a file of this name open."""
    return any(target.endswith(name) for target in links(server.process.pid))


def test_a_certificate_for_another_name_is_refused(server_factory, tmp_path):
    trust = Trust.make(tmp_path / "trust")
    trust.replace("server", (-1, 1), "elsewhere.test")
    server = server_factory(*trust.serving, devices=1, why="its certificate is for another name")
    said = refusal(server.address, ca_certificate=trust.authority)
    assert "is for other names" in said
    assert "--host 127.0.0.1" in said


def test_another_authority_of_clients_counts_from_the_next_connection_on(server_factory, tmp_path):
    trust, strangers = (Trust.make(tmp_path / name) for name in ("trust", "strangers"))
    flags = (*trust.serving, "--tls-client-ca", str(trust.authority))
    server = server_factory(*flags, devices=1, why="it trusts another authority")
    with sc.connect(server.address, ca_certificate=trust.authority, **trust.client_files) as staying:
        trusted = trust.authority.read_bytes()
        trust.authority.write_bytes(strangers.authority.read_bytes())
        with sc.connect(server.address, ca_certificate=trusted, **strangers.client_files) as coming:
            assert computes_rightly(coming)
        said = refusal(server.address, ca_certificate=trusted, **trust.client_files)
        assert "refuses this client certificate" in said
        assert computes_rightly(staying)


@only_root
def test_another_user_does_not_get_through_a_socket_of_the_servers(server_factory, tmp_path):
    server = server_factory("--unix-socket", str(tmp_path / "socket"), devices=1, why="another user tries its socket")
    with sc.connect(f"unix:{tmp_path / 'socket'}") as client:
        np.testing.assert_array_equal(client.diff([1.0, 4.0]).array, [3.0])
    tmp_path.chmod(0o755)
    assert "connected" not in outcome("connect", f"unix:{tmp_path / 'socket'}")
    assert server.process.poll() is None


@only_root
def test_the_token_of_another_user_is_not_even_shown(server):
    said = outcome("connect_with_another_file", server.address)
    assert said.startswith("AccessDeniedError the call has no token")
    assert "no server of this user on this machine that reads token files listens at" in said


@only_root
def test_a_server_refuses_the_token_file_of_another_user():
    with tempfile.TemporaryDirectory() as folder:  # not in the test's own folder, which others may not enter
        file = Path(folder, "token")
        file.touch()
        os.chmod(folder, 0o755)
        for mode, says in ((0o600, "cannot be read: Permission denied"), (0o644, "belongs to user 0")):
            os.chmod(file, mode)
            assert says in outcome("serve", file)

"""Methods refuse callers without permission before they have read a byte, other users too; tokens that change."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import grpc
import numpy as np
import pytest
from end_to_end.messages import check, chunk, execute, header, open_channel, operand, token_of
from end_to_end.processes import wait_for
from faults.token_servers import is_accepted
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_health.v1 import health_pb2  # noqa: F401  # of which the server reports a service
from grpc_reflection.v1alpha import reflection_pb2
from rows import rows
from typer.testing import CliRunner

import shardcall as sc
from shardcall.cli.app import make_app
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.wire import token_file
from shardcall_server.frontend.access.policy import METHODS, Access
from shardcall_server.frontend.access.principals import Scope
from shardcall_server.frontend.rpc.reflection import V1

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
WRONG = "A" * 43
GUARDED = [method for method, need in METHODS.items() if need is not Access.PUBLIC]
SCOPED = {method: need for method, need in METHODS.items() if isinstance(need, Scope)}
LACKING = {
    Scope.RUN: "watcher",
    Scope.ARRAYS: "runner",
    Scope.FILES: "runner",
    Scope.ADMIN: "owner",
    Scope.HOST: "owner",
}
"""A principal of the tests that lacks each scope, and has others."""


def refusal(address: str, method: str, *headers: tuple[str, str]) -> grpc.RpcError:
    """The error of a call with these headers whose request is never sent."""
    never = SimpleQueue[bytes | None]()
    with open_channel(address, token="") as channel:
        answers = channel.stream_stream(method)(iter(never.get, None), metadata=headers, timeout=60)
        try:
            with pytest.raises(grpc.RpcError) as caught:
                next(answers)
        finally:
            never.put(None)
    return caught.value


def bearer(token: str) -> tuple[str, str]:
    return "authorization", f"Bearer {token}"


def test_without_a_token_and_with_a_wrong_one_nothing_is_served(server):
    for method in GUARDED:
        error = refusal(server.address, method)
        for says in ("has no token", "SHARDCALL_TOKEN", "connect(address, token=", "authorization: Bearer <token>"):
            check(error, UNAUTHENTICATED, "TOKEN_REQUIRED", "", says)
        error = refusal(server.address, method, bearer(WRONG))
        check(error, UNAUTHENTICATED, "TOKEN_REQUIRED", "", "not valid on this server")
        assert WRONG not in str(error)


def test_a_token_without_the_scope_is_refused(server):
    for method, scope in SCOPED.items():
        error = refusal(server.address, method, bearer(token_of(LACKING[scope])))
        check(error, DENIED, "SCOPE_MISSING", "", f"needs the scope {scope}")


def test_unknown_methods_are_refused_without_a_token_and_unknown_services_with_those_there_are(server):
    guest, method = bearer(token_of("guest")), "/shardcall.v1.KernelService/Nothing"
    check(refusal(server.address, method), UNAUTHENTICATED, "TOKEN_REQUIRED", "", "has no token")
    assert refusal(server.address, method, guest).code() is grpc.StatusCode.UNIMPLEMENTED
    for method, service in (("/other.Service/Method", "other.Service"), ("/", "")):
        says = f"this server has no service '{service}'; it is a shardcall server"
        for metadata in ((), (guest,)):
            error = refusal(server.address, method, *metadata)
            check(error, grpc.StatusCode.UNIMPLEMENTED, "NOT_SUPPORTED", "", says)


@rows(
    "header",
    ["", "Bearer", "Bearer ", "Basic {token}", "{token}", "Bearer {token} ", "Bearer  {token}", "Bearer {token}x"],
)
def test_a_header_that_is_not_quite_right_opens_nothing(server, header):
    error = refusal(server.address, GUARDED[0], ("authorization", header.format(token=token_of("guest"))))
    check(error, UNAUTHENTICATED, "TOKEN_REQUIRED", "", "not valid on this server")


def test_the_second_of_two_tokens_opens_nothing(server):
    error = refusal(server.address, GUARDED[0], bearer(WRONG), bearer(token_of("guest")))
    assert error.code() is UNAUTHENTICATED


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_every_method_that_the_server_reports_is_in_the_policy(server, version):
    name = f"grpc.reflection.{version}.ServerReflection"
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    describing = reflection_pb2.ServerReflectionRequest(file_containing_symbol=name)
    with open_channel(server.address) as channel:
        ask = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        answer, described = ask(iter([listing, describing]), timeout=60)
    (file,) = described.file_descriptor_response.file_descriptor_proto
    assert descriptor_pb2.FileDescriptorProto.FromString(file).package == f"grpc.reflection.{version}"
    services = [service.name for service in answer.list_services_response.service]
    pool = descriptor_pool.Default()
    methods = [f"/{name}/{method.name}" for name in services for method in pool.FindServiceByName(name).methods]
    assert len(methods) > 15
    assert V1 in services
    assert set(methods) <= set(METHODS)


def test_every_scope_opens_its_methods(server, tmp_path):
    x = np.arange(6.0)
    with sc.connect(server.address, token=token_of("runner")) as runner:
        np.testing.assert_array_equal(runner.diff(x).array, np.ones(5))
        assert runner.usage().is_partial
        for use in (lambda: runner.put(x), runner.profile(tmp_path).start, lambda: runner.diff(x, keep=True)):
            with pytest.raises(sc.AccessDeniedError) as caught:
                use()
            assert caught.value.reason == "SCOPE_MISSING"
    with sc.connect(server.address, token=token_of("owner")) as owner:
        kept = owner.diff(owner.put(x), keep=True).array
        np.testing.assert_array_equal(kept.get(), np.ones(5))
    with sc.connect(server.address, token=token_of("watcher")) as watcher:
        assert watcher.usage().descriptors
        with pytest.raises(sc.AccessDeniedError):
            watcher.diff(x)


def test_submitted_calls_without_the_scope_fail_alone(server):
    x = np.arange(6.0)
    with sc.connect(server.address, token=token_of("runner")) as runner:
        for _ in range(20):
            dropped = runner.submit("add", x, 1.0)  # whose result the client deletes
            del dropped
            np.testing.assert_array_equal(runner.diff(x).array, np.ones(5))
        with pytest.raises(sc.AccessDeniedError, match="keep_results needs the scope arrays"):
            runner.synchronize()


@pytest.mark.parametrize("streamed", [False, True])
def test_results_stay_for_those_alone_who_may_keep_arrays(server, streamed):
    request = execute(operand(np.arange(6.0)), keep_results=True, lease_id=os.urandom(16))
    with open_channel(server.address, token=token_of("runner")) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        stream = iter([kernel_service_pb2.ExecuteStreamRequest(header=request)])
        ask = (lambda: next(stub.ExecuteStream(stream))) if streamed else (lambda: stub.Execute(request))
        with pytest.raises(grpc.RpcError) as caught:
            ask()
    check(caught.value, DENIED, "SCOPE_MISSING", "", "keep_results needs the scope arrays")


def shardcall_token(path: Path, *arguments: str) -> str:
    ended = CliRunner().invoke(make_app(), ["token", *arguments, "--token-file", str(path)])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


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
    assert is_accepted(server, served.user_token())


def test_a_call_in_progress_is_answered_after_its_token_was_removed(served):
    bob, removed = served.add("bob"), threading.Event()

    def upload() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([4, 100])
        removed.wait(60)
        yield chunk(0, 0, 3200)

    address = served.server.address
    (admin,) = token_file.read(token_file.admin_path(str(served.path)))
    with open_channel(address, token=bob) as channel, sc.connect(address, token=admin.token) as one:
        answers = kernel_service_pb2_grpc.KernelServiceStub(channel).ExecuteStream(upload(), timeout=120)
        wait_for(lambda: one.usage().calls == 1)
        served.remove("bob")
        wait_for(lambda: not is_accepted(served.server, bob))
        removed.set()
        assert [message.WhichOneof("message") for message in answers] == ["header", "chunk", "timing"]


def test_a_principal_whose_token_is_new_has_its_arrays_still(served):
    server, old = served.server, served.add("bob")
    with sc.connect(server.address, token=old) as before:
        kept = before.put(np.arange(4.0))
        new = served.add("bob")
        wait_for(lambda: not is_accepted(server, old))
        with sc.connect(server.address, token=new) as after:
            np.testing.assert_array_equal(after.get(kept.handle), np.arange(4.0))


only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")

_SCRIPT = Path(__file__).with_name("other_user.py")
_NOBODY = 65534


def other_user(deed: str, where: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(_SCRIPT), str(_NOBODY), deed, str(where)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )


def outcome(deed: str, where: object) -> str:
    """The output of another user's process that does something."""
    out, err = other_user(deed, where).communicate(timeout=300)
    assert not err or "Traceback" not in err, err
    return out


@only_root
def test_another_user_who_has_no_token_is_refused(server):
    said = outcome("connect", server.address)
    assert said.startswith("AccessDeniedError the call has no token")
    assert "cannot be read: Permission denied" in said or "belongs to user 0" in said


@only_root
def test_who_took_a_port_before_the_server_is_shown_no_token():
    squatter = other_user("squat", "")
    assert squatter.stdin is not None
    assert squatter.stdout is not None
    try:
        address = squatter.stdout.readline().strip()
        with sc.connect(address, shared_memory=False):
            pass
        called = squatter.stdout.readline()
        assert called.startswith("called with ")
        assert "shardcall-timeout" in called
        assert "authorization" not in called
        with sc.connect(address, token="given-by-hand-0123456789", shared_memory=False):
            pass
        assert "authorization" in squatter.stdout.readline()
    finally:
        squatter.communicate(timeout=60)

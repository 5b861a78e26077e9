"""Every method refuses callers without permission, before it has read a byte of the request."""

import os
from queue import SimpleQueue

import grpc
import numpy as np
import pytest
from end_to_end.messages import check, execute, open_channel, operand, token_of
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2
from rows import rows

import shardcall as sc
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
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

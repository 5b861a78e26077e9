"""The interceptor on a gRPC server: each RPC is admitted once, and its method gets the principal."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.wire.token_file import Entry
from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.principals import Principal
from shardcall_server.frontend.access.tokens import Tokens
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.observability.metrics import Metrics
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.interceptor import CallInterceptor, TimeLimits

ALICE, BOB = Entry.make("alice", ["run"]), Entry.make("bob", ["run"])
PATIENCE_S = 20.0  # an answer comes at once; a test that waits so long has failed
STREAM = "/shardcall.v1.KernelService/CallStream"


class Kernels:
    """A service whose methods record the names of their principals."""

    def __init__(self) -> None:
        self.principals: list[str] = []
        self.tokens_versions: list[int] = []

    def ListKernels(self, request: Any, call: ServerCall) -> kernel_service_pb2.ListKernelsResponse:
        self.principals.append(call.principal_name)
        return kernel_service_pb2.ListKernelsResponse()

    def ExecuteStream(self, requests: Iterator[Any], call: ServerCall) -> Iterator[Any]:
        self.principals.append(call.principal_name)
        yield from ()

    def CallStream(
        self, requests: Iterator[bytes], context: Any, principal: Principal, tokens_version: int
    ) -> Iterator[bytes]:
        self.principals.append(principal.name)
        self.tokens_versions.append(tokens_version)
        yield b""

    def __getattr__(self, name: str) -> None:
        """Methods that no test calls."""


@pytest.fixture
def gate() -> Any:
    """A gate that counts the RPCs that come to it."""
    gate: Any = Gate(Tokens([ALICE, BOB]))
    gate.admit = Mock(wraps=gate.admit)
    return gate


@pytest.fixture
def kernels() -> Kernels:
    return Kernels()


@pytest.fixture
def channel(gate: Gate, kernels: Kernels) -> Iterator[grpc.Channel]:
    interceptor = CallInterceptor(
        TimeLimits(PATIENCE_S, PATIENCE_S),
        gate,
        Admission(4, 4, 4),
        CallThreads(4),
        CallRecorder(Metrics()),
        FloodGuard(),
        CountedThreads(2, 1, "stream"),
    )
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, interceptors=[interceptor])
        kernel_service_pb2_grpc.add_KernelServiceServicer_to_server(kernels, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with closing(grpc.insecure_channel(f"127.0.0.1:{port}")) as channel:
            yield channel
        server.stop(None).wait()


def metadata(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


def test_an_rpc_is_admitted_once_and_its_method_gets_the_principal(channel, gate, kernels):
    stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
    for count, entry in enumerate((ALICE, BOB, ALICE), 1):
        shown: Any = {"metadata": metadata(entry.token), "timeout": PATIENCE_S}
        stub.ListKernels(kernel_service_pb2.ListKernelsRequest(), **shown)
        assert list(stub.ExecuteStream(iter([kernel_service_pb2.ExecuteStreamRequest()]), **shown)) == []
        assert list(channel.stream_stream(STREAM)(iter([]), **shown)) == [b""]
        assert gate.admit.call_count == 3 * count
        assert kernels.principals[-3:] == [entry.name] * 3
    assert kernels.tokens_versions == [gate.version] * 3


def test_a_refused_rpc_does_not_reach_its_method(channel, gate, kernels):
    stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
    shown: Any = {"metadata": metadata("none"), "timeout": PATIENCE_S}
    for call in (
        lambda: stub.ListKernels(kernel_service_pb2.ListKernelsRequest(), **shown),
        lambda: list(channel.stream_stream(STREAM)(iter([]), timeout=PATIENCE_S)),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert (gate.admit.call_count, kernels.principals) == (2, [])

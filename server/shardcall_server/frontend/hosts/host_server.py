"""gRPC server at which the agents of hosts join."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import structlog

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import CallError
from shardcall_core.wire.chunk_codec import decode
from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.ports import listen_for_hosts, session_names
from shardcall_server.frontend.access.session_sockets import open_session_sockets
from shardcall_server.frontend.access.tokens import Tokens
from shardcall_server.frontend.hosts.host import Host
from shardcall_server.frontend.hosts.hosts import HostRefusedError, Hosts, NotNowError
from shardcall_server.frontend.hosts.names import HOST_NAME, HOST_NAME_RULE
from shardcall_server.frontend.hosts.pieces import MESSAGE_BYTES
from shardcall_server.frontend.observability.sparse_warning import SparseWarning
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.grpc_options import grpc_options
from shardcall_server.frontend.rpc.status import CallStatus
from shardcall_server.settings import Settings
from shardcall_worker.v1 import host_service_pb2

SERVICE = "shardcall_worker.v1.HostService"
_METHOD = f"/{SERVICE}/Join"
_HELLO_S = 10.0
_SPARE_HOSTS = 8  # on standby, or joining again while their last call still ends
_MAX_IDLE_MS = 30_000
_CONNECTION_LOST = "its connection was lost"
_NONSENSE = "it sent bytes that are no message of this method"
_CARRIER: Any = host_service_pb2.JoinRequest
_MALFORMED = object()


class HostServer:
    """Serves agents at an address of its own, since no client may do what an agent may.

    Args:
        hosts: the registry of hosts.
        tokens: authenticates agents; None without authentication.
        floods: limits connections; notified of those by which agents join.

    Attributes:
        address: the listening address, "host:port".

    Raises:
        SettingsError: the address or the threads are not available.
    """

    def __init__(self, settings: Settings, hosts: Hosts, tokens: Tokens | None, floods: FloodGuard) -> None:
        self._hosts = hosts
        self._gate = Gate(tokens)
        self._floods = floods
        self._refusals = SparseWarning("calls were not admitted")
        max_calls = 2 * settings.hosts + _SPARE_HOSTS
        self._server = grpc.server(
            CountedThreads(max_calls, max_calls, "host"),
            options=[
                *grpc_options(settings),
                # Later options win: a lost host must be noticed soon.
                ("grpc.keepalive_time_ms", 5_000),
                ("grpc.keepalive_timeout_ms", 5_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
                # A message over the limit would end the call and so the mesh; clients choose the size of commands.
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
                # An agent always has a call; other connections must make way for agents.
                ("grpc.max_connection_idle_ms", _MAX_IDLE_MS),
                ("grpc.max_allowed_incoming_connections", max(settings.max_connections, 2 * max_calls)),
            ],
            maximum_concurrent_rpcs=max_calls,
        )
        join: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(self._join, _parse, None)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Join": join}),))
        self.address = listen_for_hosts(self._server, settings)
        self._sessions = open_session_sockets(session_names(self.address), tokens)
        self._server.start()

    def close(self) -> None:
        """Stops the server."""
        if self._sessions is not None:
            self._sessions.close()
        self._server.stop(1.0).wait()

    def _join(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            self._gate.admit(_METHOD, tuple((key, value) for key, value in context.invocation_metadata()))
        except CallError as error:
            self._refusals.note(context.peer(), method="Join", reason=error.reason.value)
            context.abort_with_status(CallStatus(error, timing_pb2.Timing()))
        self._floods.admit(context.peer())
        hello = _hello(requests, context)
        try:
            host = self._hosts.join(hello)
        except HostRefusedError as error:
            structlog.get_logger().warning("a host was refused", host=hello.name, reason=str(error))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except NotNowError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        context.add_callback(lambda: self._hosts.remove(host, _CONNECTION_LOST))
        threading.Thread(target=self._read, args=[host, requests], name="host-read", daemon=True).start()
        yield from host.outgoing()
        code = grpc.StatusCode.FAILED_PRECONDITION if host.is_refused else grpc.StatusCode.UNAVAILABLE
        context.abort(
            grpc.StatusCode.INVALID_ARGUMENT if host.disconnect_reason == _NONSENSE else code, host.disconnect_reason
        )

    def _read(self, host: Host, requests: Iterator[Any]) -> None:
        try:
            for request in requests:
                if request is _MALFORMED:
                    self._hosts.remove(host, _NONSENSE)
                    return
                host.handle(request)
        except Exception as error:  # noqa: BLE001  # raised by gRPC when the call ends, or caused by a foreign agent
            if not isinstance(error, grpc.RpcError):
                structlog.get_logger().warning("the call of a host failed", host=host.name, reason=repr(error))
        self._hosts.remove(host, _CONNECTION_LOST)


def _parse(data: bytes) -> Any:
    """Parses a request; returns `_MALFORMED` if it is invalid, since gRPC itself would answer INTERNAL."""
    try:
        return decode(_CARRIER, data)
    except Exception:  # noqa: BLE001  # protobuf raises more than its own DecodeError
        return _MALFORMED


def _hello(requests: Iterator[Any], context: grpc.ServicerContext) -> host_service_pb2.Hello:
    """Returns the first message, which must come within `_HELLO_S` seconds."""
    timer = threading.Timer(_HELLO_S, context.cancel)
    timer.daemon = True
    timer.start()
    first = next(requests, None)
    timer.cancel()
    if not isinstance(first, host_service_pb2.JoinRequest) or not HOST_NAME.fullmatch(first.hello.name):
        context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, f"the first message must be a Hello with a name of {HOST_NAME_RULE}"
        )
    hello: host_service_pb2.Hello = first.hello
    return hello

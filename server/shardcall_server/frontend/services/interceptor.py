"""Where every call of our services begins and ends: its `ServerCall` is made here, its error translated."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import grpc
import structlog

from shardcall._src.wire.chunk_codec import decode
from shardcall.v1 import array_service_pb2, kernel_service_pb2, timing_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.policy import METHODS, RULES
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.rpc.admission import Admission, Advance
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.status import STATUS_CODES, CallStatus

T = TypeVar("T")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Begin: TypeAlias = Callable[[grpc.ServicerContext], ServerCall]
_OURS = "/shardcall.v1."
_CARRIERS: Mapping[str, Callable[[bytes], Any]] = {
    "ExecuteStream": partial(decode, kernel_service_pb2.ExecuteStreamRequest),
    "PutArray": partial(decode, array_service_pb2.PutArrayRequest),
}
"""How the requests are read that may hold chunks."""
_GRACE_S = 0.5  # for a handler that sees its deadline by itself, and can say what it was doing


class CallInterceptor(grpc.ServerInterceptor):
    """Hands servicers a `ServerCall` instead of gRPC's context, and makes a status of whatever they raise.

    An exception that nobody meant becomes INTERNAL with a fixed sentence and an id that is in the log:
    names, paths and tracebacks of the server never leave it.

    Args:
        max_call_s: the longest call.
        stream_idle_s: the longest wait for a message to come or to be taken.
        gate: who is let in.
        admission: how much is worked on at once.
        threads: what calls are handled on.
        call_recorder: told of every call's end.
        floods: told of connections with calls that are let in.

    Attributes:
        drain: whether calls are still taken, and how many are at work.
    """

    def __init__(
        self,
        max_call_s: float,
        stream_idle_s: float,
        gate: Gate,
        admission: Admission,
        threads: CallThreads,
        call_recorder: CallRecorder,
        floods: FloodGuard,
    ) -> None:
        self._max_call_s = max_call_s
        self._stream_idle_s = stream_idle_s
        self._gate = gate
        self._admission = admission
        self._threads = threads
        self._deadline_timer = DeadlineTimer()
        self._call_recorder = call_recorder
        self._floods = floods
        self._handlers: dict[str, Handler] = {}
        self.drain = Drain()

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Lets nobody in whom the gate refuses, and wraps the methods of our services."""
        name = handler_call_details.method
        try:
            self._gate.admit(name, handler_call_details.invocation_metadata)
        except CallError as refusal:
            # A server that ends has closed the way to a session token, and the next one may know who this is.
            error = self.drain.refusal or refusal
            return self._threads.refusing(partial(self._turn_away, name, error, time.monotonic()))
        if self._threads.full and name.startswith(_OURS):
            return self._threads.refusing(partial(self._refuse, name.rpartition("/")[2]))
        if (known := self._handlers.get(name)) is not None:
            return known
        handler = continuation(handler_call_details)
        if handler is None or not name.startswith(_OURS):
            return handler
        wrapped = self._handlers[name] = self._wrap(handler, name)
        return wrapped

    def _wrap(self, handler: Handler, name: str) -> Handler:
        method = name.rpartition("/")[2]
        carrier = _CARRIERS.get(method)
        deserialize = _lenient(carrier or cast(Any, handler.request_deserializer))
        serialize = _unless_bytes(cast(Any, handler.response_serializer))
        begin = partial(self._begin, name)
        kind = _Kind(method, RULES[name].needs_call_slot, handler.request_streaming)
        implementation = cast(
            Any, handler.stream_stream or handler.unary_stream or handler.stream_unary or handler.unary_unary
        )
        if handler.response_streaming:
            streaming = self._streaming(implementation, begin, kind)
            return grpc.stream_stream_rpc_method_handler(streaming, deserialize, serialize)
        unary = self._unary(implementation, begin, kind)
        return grpc.stream_unary_rpc_method_handler(unary, deserialize, serialize)

    def _begin(self, name: str, context: grpc.ServicerContext) -> ServerCall:
        principal = self._gate.admit(name, context.invocation_metadata())
        call = ServerCall(context, self._max_call_s, principal)
        self._floods.admit(call.connection)
        self._call_recorder.begin(call)
        return call

    def _failed(self, name: str, error: Exception, call: ServerCall | None) -> CallStatus:
        told = _told((call.cut_off_by if call else None) or error)
        status = CallStatus(told, call.finish() if call else timing_pb2.Timing())
        self._call_recorder.end(name, call, status.code, told.reason)
        return status

    def _unary(
        self, method: Callable[[Any, ServerCall], Any], begin: Begin, kind: _Kind
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        def behaviour(requests: Any, context: grpc.ServicerContext) -> Any:
            call = None
            try:
                call = begin(context)
                with self._admitted(call, requests, kind) as arriving:
                    answer = method(arriving if kind.streams else next(arriving), call)
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                return context.abort_with_status(self._failed(kind.name, error, call))
            self._call_recorder.end(kind.name, call)
            return answer

        return behaviour

    def _streaming(
        self, method: Callable[[Any, ServerCall], Generator[Any]], begin: Begin, kind: _Kind
    ) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
        def behaviour(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            call = None
            try:
                call = begin(context)
                with (
                    self._admitted(call, requests, kind) as arriving,
                    closing(method(arriving if kind.streams else next(arriving), call)) as answers,
                ):
                    for answer in answers:
                        with self._idle_limit(call, "the caller took none of the results"):
                            yield answer
            except GeneratorExit:  # gRPC asks for no more: the caller is gone, or the call was cut off
                ended = call.cut_off_by if call else None
                reason = ended.reason if ended else Reason.CANCELLED
                self._call_recorder.end(kind.name, call, STATUS_CODES[reason], reason)
                raise
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                context.abort_with_status(self._failed(kind.name, error, call))
            self._call_recorder.end(kind.name, call)

        return behaviour

    @contextmanager
    def _admitted(self, call: ServerCall, requests: Iterator[Any], kind: _Kind) -> Iterator[Iterator[Any]]:
        """The requests of a call that has its slots, and an end soon after its deadline, during the body.

        A sender or reader that stalls holds the handler's thread in gRPC, from where only an end of the RPC wakes it.
        """

        def end() -> None:
            call.cut_off(call.deadline_exceeded("receiving the operands or sending the results"))

        with (
            self.drain.working(call.connection),
            self._admission.admitted(call, works=kind.works) as advance,
            self._deadline_timer.at(call.deadline + _GRACE_S, end),
        ):
            yield self._arriving(call, requests, kind, advance)

    def _arriving(self, call: ServerCall, requests: Iterator[Any], kind: _Kind, advance: Advance) -> Iterator[Any]:
        """The requests of a call, each of which is due in time; after the last the call's arrival ends.

        A method of one request is read as one of a stream of them, which on the wire is the same: gRPC would read the
        request before anybody has seen the call, on a thread that waits for it without end.
        """
        while True:
            with self._idle_limit(call, "the caller sent nothing"):
                request = next(requests, None)
            if call.cut_off_by is not None:  # for gRPC, the stream ends
                raise call.cut_off_by
            if not kind.streams:
                advance(False)
                yield _parsed(request if request is not None else _Malformed())
                return
            if request is None:
                advance(True)
                return
            yield _parsed(request)

    def _idle_limit(self, call: ServerCall, what: str) -> AbstractContextManager[None]:
        """Ends a call whose next message neither comes nor is taken during the body."""

        def end() -> None:
            call.cut_off(
                CallError(
                    Reason.STREAM_IDLE,
                    f"{what} for {self._stream_idle_s:g} s, the longest that the server waits; repeat the call, or "
                    "start the server with a larger --stream-idle-s",
                )
            )

        return self._deadline_timer.at(time.monotonic() + self._stream_idle_s, end)

    def _turn_away(self, name: str, error: CallError, began: float, caller: str) -> CallStatus:
        status = CallStatus(error, timing_pb2.Timing(total_seconds=time.monotonic() - began))
        if error.reason is Reason.SCOPE_MISSING:  # the token is one of this server's
            self._floods.admit(caller)
        # Whoever is refused could make names without end.
        self._call_recorder.refused(
            name.rpartition("/")[2] if name in METHODS else "unknown", caller, status.code, error.reason
        )
        return status

    def _refuse(self, name: str, caller: str) -> CallStatus:
        self._floods.admit(caller)  # the token was good
        return self._failed(name, self._admission.busy_error(), None)


@dataclass(frozen=True)
class _Kind:
    """A method.

    Attributes:
        name: its bare name, "Execute".
        works: whether it works on arrays, and so needs a call slot.
        streams: whether its requests are a stream.
    """

    name: str
    works: bool
    streams: bool


class _Malformed:
    """Stands where a request does whose bytes are none; gRPC itself would answer INTERNAL."""


def _lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception:  # noqa: BLE001  # protobuf raises more than its own DecodeError
            return _Malformed()

    return parse


def _unless_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Lets pass what is serialized already, such as chunks."""
    return lambda response: response if isinstance(response, bytes) else serialize(response)


def _parsed(request: Any) -> Any:
    if isinstance(request, _Malformed):
        raise CallError(
            Reason.MALFORMED_REQUEST, "the request is no message of this method; use stubs made of its contract"
        )
    return request


def _told(error: Exception) -> CallError:
    """What the caller is told of whatever was raised."""
    if isinstance(error, grpc.RpcError):  # reading from or writing to a caller that is gone
        return CallError(Reason.CANCELLED, "the caller cancelled the call")
    if isinstance(error, CallError):
        return error
    error_id = secrets.token_hex(4)
    structlog.get_logger().error("a call failed unexpectedly", error_id=error_id, exc_info=error)
    return CallError(
        Reason.INTERNAL,
        f"the server failed at a fault of its own; tell its keeper of error {error_id}",
        metadata={"error_id": error_id},
    )

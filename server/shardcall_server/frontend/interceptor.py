"""Where every call of our services begins and ends: its `Call` is made here, its error translated."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import grpc
import structlog

from shardcall.rpc.chunk_codec import decode
from shardcall.v1 import array_service_pb2, kernel_service_pb2, timing_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.policy import METHODS
from shardcall_server.frontend.admission import Admission, server_busy
from shardcall_server.frontend.alarms import Alarms
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.call_threads import CallThreads
from shardcall_server.frontend.draining import Draining
from shardcall_server.frontend.journal import Journal
from shardcall_server.frontend.status import CallStatus

T = TypeVar("T")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Begin: TypeAlias = Callable[[grpc.ServicerContext], Call]
_OURS = "/shardcall.v1."
_WORKING = frozenset({"Plan", "Compile", "Execute", "ExecuteStream", "PutArray", "GetArray", "OpenSegment"})
_CARRIERS: Mapping[str, Callable[[bytes], Any]] = {
    "ExecuteStream": partial(decode, kernel_service_pb2.ExecuteStreamRequest),
    "PutArray": partial(decode, array_service_pb2.PutArrayRequest),
}
"""How the requests are read that may hold chunks."""
_GRACE_S = 0.5  # for a handler that sees its deadline by itself, and can say what it was doing
_RECEIVE_S = 60.0  # for the one message of a call that has no more: none is larger than a few MiB


class CallInterceptor(grpc.ServerInterceptor):
    """Hands servicers a `Call` instead of gRPC's context, and makes a status of whatever they raise.

    An exception that nobody meant becomes INTERNAL with a fixed sentence and an id that is in the log:
    names, paths and tracebacks of the server never leave it.

    Args:
        max_call_s: the longest call.
        gate: who is let in.
        admission: how much is worked on at once.
        threads: what calls are handled on.
        journal: told of every call's end.

    Attributes:
        draining: whether calls are still taken, and how many are at work.
    """

    def __init__(
        self, max_call_s: float, gate: Gate, admission: Admission, threads: CallThreads, journal: Journal
    ) -> None:
        self._max_call_s = max_call_s
        self._gate = gate
        self._admission = admission
        self._threads = threads
        self._alarms = Alarms()
        self._journal = journal
        self._handlers: dict[str, Handler] = {}
        self.draining = Draining()

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
            error = self.draining.refusal or refusal
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
        works = method in _WORKING
        match handler.request_streaming, handler.response_streaming:
            case True, True:
                streaming = self._streaming(cast(Any, handler.stream_stream), begin, method, works)
                return grpc.stream_stream_rpc_method_handler(streaming, deserialize, serialize)
            case False, True:
                streaming = self._streaming(self._single(cast(Any, handler.unary_stream), works), begin, method, works)
                return grpc.stream_stream_rpc_method_handler(streaming, deserialize, serialize)
            case True, False:
                unary = self._unary(cast(Any, handler.stream_unary), begin, method, works)
                return grpc.stream_unary_rpc_method_handler(unary, deserialize, serialize)
        unary = self._unary(self._single(cast(Any, handler.unary_unary), works), begin, method, works)
        return grpc.stream_unary_rpc_method_handler(unary, deserialize, serialize)

    def _begin(self, name: str, context: grpc.ServicerContext) -> Call:
        principal = self._gate.admit(name, context.invocation_metadata())
        call = Call(context, self._max_call_s, principal)
        self._journal.begin(call)
        return call

    def _failed(self, name: str, error: Exception, call: Call | None) -> CallStatus:
        told = _told(error)
        status = CallStatus(told, call.finish() if call else timing_pb2.Timing())
        self._journal.end(name, call, status.code, told.reason)
        return status

    def _unary(
        self, method: Callable[[Any, Call], Any], begin: Begin, name: str, works: bool
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        def behaviour(requests: Any, context: grpc.ServicerContext) -> Any:
            call = None
            try:
                call = begin(context)
                with self._admitted(call, works), self._ended_at_last(call):
                    answer = method(map(_parsed, requests), call)
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                return context.abort_with_status(self._failed(name, error, call))
            self._journal.end(name, call)
            return answer

        return behaviour

    def _streaming(
        self, method: Callable[[Any, Call], Iterator[Any]], begin: Begin, name: str, works: bool
    ) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
        def behaviour(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            call = None
            try:
                call = begin(context)
                with self._admitted(call, works), self._ended_at_last(call):
                    yield from method(map(_parsed, requests), call)
            except GeneratorExit:  # gRPC asks for no more: the caller is gone
                self._journal.end(name, call, grpc.StatusCode.CANCELLED, Reason.CANCELLED)
                raise
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                context.abort_with_status(self._failed(name, error, call))
            self._journal.end(name, call)

        return behaviour

    @contextmanager
    def _admitted(self, call: Call, works: bool) -> Iterator[None]:
        # Questions about the server are answered while every call's place is taken.
        with self.draining.working(), self._admission.working(call) if works else nullcontext():
            yield

    def _ended_at_last(self, call: Call) -> AbstractContextManager[None]:
        """Ends an RPC soon after its deadline, whatever its handler waits for.

        A sender or reader that stalls holds the handler's thread in gRPC, from where only an end of the RPC wakes it.
        """
        return self._alarms.at(call.deadline + _GRACE_S, call.cut_off)

    def _single(self, method: Callable[[Any, Call], T], works: bool) -> Callable[[Iterator[Any], Call], T]:
        """A method of one request, as one of a stream of requests: on the wire they are the same.

        gRPC would read the request before anybody has seen the call, on a thread that waits for it without end.
        """

        def first(requests: Iterator[Any], call: Call) -> T:
            until = min(call.deadline + _GRACE_S, time.monotonic() + _RECEIVE_S)
            # Who has no place is bounded here: otherwise one client's calls without requests would hold every thread.
            waiting = nullcontext() if works else self._admission.arriving(call)
            with waiting, self._alarms.at(until, call.cut_off):
                request = next(requests, None)
            return method(request if request is not None else _parsed(_Malformed()), call)

        return first

    def _turn_away(self, name: str, error: CallError, began: float, caller: str) -> CallStatus:
        status = CallStatus(error, timing_pb2.Timing(total_seconds=time.monotonic() - began))
        # Whoever is refused could make names without end.
        self._journal.refused(
            name.rpartition("/")[2] if name in METHODS else "unknown", caller, status.code, error.reason
        )
        return status

    def _refuse(self, name: str, _caller: str) -> CallStatus:
        return self._failed(name, server_busy(self._admission.max_calls), None)


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

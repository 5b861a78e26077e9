"""Where every call of our services begins and ends: its `Call` is made here, its error translated."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias, cast

import grpc
import structlog

from shardcall.chunk_codec import decode
from shardcall.v1 import array_service_pb2, kernel_service_pb2, timing_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.admission import Admission
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.status import CallStatus

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


class CallInterceptor(grpc.ServerInterceptor):
    """Hands servicers a `Call` instead of gRPC's context, and makes a status of whatever they raise.

    An exception that nobody meant becomes INTERNAL with a fixed sentence and an id that is in the log:
    names, paths and tracebacks of the server never leave it.

    Args:
        max_call_s: the longest call.
        gate: who is let in.
        admission: how much is worked on at once.
    """

    def __init__(self, max_call_s: float, gate: Gate, admission: Admission) -> None:
        self._max_call_s = max_call_s
        self._gate = gate
        self._admission = admission
        self._handlers: dict[str, Handler] = {}
        self.draining = False

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the methods of our services; health and reflection stay as they are."""
        name = handler_call_details.method
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
                streaming = self._streaming(cast(Any, handler.stream_stream), begin, works)
                return grpc.stream_stream_rpc_method_handler(streaming, deserialize, serialize)
            case False, True:
                streaming = self._streaming(cast(Any, handler.unary_stream), begin, works)
                return grpc.unary_stream_rpc_method_handler(streaming, deserialize, serialize)
            case True, False:
                unary = self._unary(cast(Any, handler.stream_unary), begin, works)
                return grpc.stream_unary_rpc_method_handler(unary, deserialize, serialize)
        unary = self._unary(cast(Any, handler.unary_unary), begin, works)
        return grpc.unary_unary_rpc_method_handler(unary, deserialize, serialize)

    def _begin(self, name: str, context: grpc.ServicerContext) -> Call:
        principal = self._gate.admit(name, context.invocation_metadata())
        return Call(context, self._max_call_s, principal)

    def _unary(
        self, method: Callable[[Any, Call], Any], begin: Begin, works: bool
    ) -> Callable[[Any, grpc.ServicerContext], Any]:
        def behaviour(requests: Any, context: grpc.ServicerContext) -> Any:
            call = None
            try:
                call = begin(context)
                streams = isinstance(requests, Iterator)
                with self._admitted(call, works), _ended_at_last(call, context) if streams else nullcontext():
                    return method(_checked(requests), call)
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                return context.abort_with_status(_status(error, call))

        return behaviour

    def _streaming(
        self, method: Callable[[Any, Call], Iterator[Any]], begin: Begin, works: bool
    ) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
        def behaviour(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            call = None
            try:
                call = begin(context)
                with self._admitted(call, works), _ended_at_last(call, context):
                    yield from method(_checked(requests), call)
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                context.abort_with_status(_status(error, call))

        return behaviour

    def _admitted(self, call: Call, works: bool) -> AbstractContextManager[None]:
        if self.draining:
            raise CallError(Reason.SERVER_DRAINING, "the server is shutting down and takes no new calls; use another")
        # Questions about the server are answered while every call's place is taken.
        return self._admission.working(call) if works else nullcontext()


@contextmanager
def _ended_at_last(call: Call, context: grpc.ServicerContext) -> Iterator[None]:
    """Ends a streamed RPC soon after its deadline, whatever its handler waits for.

    A sender or reader that stalls holds the handler's thread in gRPC, from where only an end of the RPC wakes it.
    """
    timer = threading.Timer(call.remaining_s + _GRACE_S, context.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Malformed:
    """Stands where a request does whose bytes are none; gRPC itself would answer INTERNAL."""


def _lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception:  # noqa: BLE001  # protobuf raises more than its own DecodeError
            return _Malformed()

    return parse


def _checked(requests: Any) -> Any:
    """The request, or the requests of a stream, none of them malformed."""
    return map(_parsed, requests) if isinstance(requests, Iterator) else _parsed(requests)


def _unless_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Lets pass what is serialized already, such as chunks."""
    return lambda response: response if isinstance(response, bytes) else serialize(response)


def _parsed(request: Any) -> Any:
    if isinstance(request, _Malformed):
        raise CallError(
            Reason.MALFORMED_REQUEST, "the request is no message of this method; use stubs made of its contract"
        )
    return request


def _status(error: Exception, call: Call | None) -> CallStatus:
    if isinstance(error, grpc.RpcError):  # reading from or writing to a caller that is gone
        error = CallError(Reason.CANCELLED, "the caller cancelled the call")
    elif not isinstance(error, CallError):
        error_id = secrets.token_hex(4)
        structlog.get_logger().error("a call failed unexpectedly", error_id=error_id, exc_info=error)
        error = CallError(
            Reason.INTERNAL,
            f"the server failed at a fault of its own; tell its keeper of error {error_id}",
            metadata={"error_id": error_id},
        )
    return CallStatus(error, call.finish() if call else timing_pb2.Timing())

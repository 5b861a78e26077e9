"""Where every call of our services begins and ends: its `Call` is made here, its error translated."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

import grpc
import structlog

from shardcall.v1 import timing_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.status import CallStatus

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_OURS = "/shardcall.v1."


class CallInterceptor(grpc.ServerInterceptor):
    """Hands servicers a `Call` instead of gRPC's context, and makes a status of whatever they raise.

    An exception that nobody meant becomes INTERNAL with a fixed sentence and an id that is in the log:
    names, paths and tracebacks of the server never leave it.

    Args:
        max_call_s: the longest call.
        max_calls: how many calls may be worked on at once.
    """

    def __init__(self, max_call_s: float, max_calls: int) -> None:
        self._max_call_s = max_call_s
        self._max_calls = max_calls
        self._free = threading.Semaphore(max_calls)
        self.draining = False

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the methods of our services; health and reflection stay as they are."""
        handler = continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(_OURS):
            return handler
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(cast(Any, handler.stream_stream)),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(cast(Any, handler.unary_unary)), handler.request_deserializer, handler.response_serializer
        )

    def _unary(self, method: Callable[[Any, Call], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
        def behaviour(request: Any, context: grpc.ServicerContext) -> Any:
            call = None
            try:
                self._admit()
                try:
                    call = Call(context, self._max_call_s)
                    return method(request, call)
                finally:
                    self._free.release()
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                return context.abort_with_status(_status(error, call))

        return behaviour

    def _streaming(
        self, method: Callable[[Any, Call], Iterator[Any]]
    ) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
        def behaviour(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            call = None
            try:
                self._admit()
                # A sender that stalls holds this thread in its next(); only an end of the RPC wakes it.
                limit = threading.Timer(self._max_call_s, context.cancel)
                if context.time_remaining() is None:
                    limit.daemon = True
                    limit.start()
                try:
                    call = Call(context, self._max_call_s)
                    yield from method(requests, call)
                finally:
                    limit.cancel()
                    self._free.release()
            except Exception as error:  # noqa: BLE001  # the outermost: nothing may pass
                context.abort_with_status(_status(error, call))

        return behaviour

    def _admit(self) -> None:
        if self.draining:
            raise CallError(Reason.SERVER_DRAINING, "the server is shutting down and takes no new calls; use another")
        if not self._free.acquire(blocking=False):
            raise CallError(
                Reason.SERVER_BUSY,
                f"the server works on {self._max_calls} calls already, the most it takes at once; repeat the "
                "call later",
                metadata={"limit": "max_concurrent_calls"},
            )


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

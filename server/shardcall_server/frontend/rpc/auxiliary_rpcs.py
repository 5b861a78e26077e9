"""Health and reflection: limits on their RPCs, which use no threads of calls; the answers of health watches."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.access.policy import INFERENCE_SERVICE
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.status import CallStatus

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_OURS = ("/shardcall.v1.", f"/{INFERENCE_SERVICE}/")
_HEALTH = "/grpc.health.v1."
_UNARY_S = 2.0  # for a request to arrive and be answered
_STREAM_S = 10.0
_HEALTH_THREADS = 64
_MAX_HEALTH_RPCS = 512
_MAX_AWAITED = 48  # RPCs whose request has not arrived: each holds a thread
_MAX_STREAMS = 8
_MAX_WATCHES = 1024
_MAX_WATCHES_OF_CONNECTION = 32
_MALFORMED = object()


class AuxiliaryRpcs(grpc.ServerInterceptor):
    """Gives the auxiliary services threads of their own, deadlines, and limits on concurrent RPCs.

    gRPC reads a request on the thread that handles it, and waits for the sender without a limit. A reflection stream
    holds its thread until it ends. Health watches hold no thread and have no deadline. An RPC that stalls on one
    connection does not delay health checks on others.

    Args:
        threads: the threads of calls, which also refuse RPCs.
    """

    def __init__(self, threads: CallThreads) -> None:
        self._threads = threads
        self._deadline_timer = DeadlineTimer()
        self._awaited = AwaitedChecks(_MAX_AWAITED)
        self._watches: Counter[str] = Counter()  # by connection
        self._watches_lock = threading.Lock()  # guards `_watches`
        self._health = CountedThreads(_HEALTH_THREADS, _MAX_HEALTH_RPCS, "health")
        self._reflection = CountedThreads(_MAX_STREAMS, _MAX_STREAMS, "reflection")

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the methods of the auxiliary services."""
        handler = continuation(handler_call_details)
        name = handler_call_details.method
        if handler is None or name.startswith(_OURS):
            return handler
        pool = self._health if name.startswith(_HEALTH) else self._reflection
        if pool.full:
            return self._threads.refusing(lambda _: _busy())
        return self._wrap(handler, pool)

    def _wrap(self, handler: Any, pool: CountedThreads) -> Handler:
        parse = _lenient(handler.request_deserializer)
        if handler.response_streaming:
            make, method = grpc.stream_stream_rpc_method_handler, handler.stream_stream or handler.unary_stream
        else:
            make, method = grpc.stream_unary_rpc_method_handler, handler.stream_unary or handler.unary_unary
        if getattr(method, "experimental_non_blocking", False):
            behaviour = self._watch(method)
        elif handler.response_streaming:
            behaviour = self._stream(method)
        else:
            behaviour = self._unary(method)
        behaviour.experimental_thread_pool = pool  # type: ignore[attr-defined]  # gRPC's name
        return make(behaviour, parse, handler.response_serializer)

    def _unary(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def behaviour(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return method(self._first(requests, context), context)

        return behaviour

    def _stream(self, method: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
        def behaviour(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._deadline_timer.at(time.monotonic() + _STREAM_S, context.cancel):
                yield from method((_checked(request, context) for request in requests), context)

        return behaviour

    def _watch(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)  # keeps gRPC's mark that the method holds no thread
        def behaviour(requests: Iterator[Any], context: grpc.ServicerContext, answer: Callable[[Any], None]) -> None:
            request = self._first(requests, context)
            release = self._begin_watch(context)
            if context.add_callback(release):
                method(request, context, WatchAnswers(answer, context.cancel, self._health, self._deadline_timer).put)
            else:  # it has ended already
                release()

        return behaviour

    def _begin_watch(self, context: grpc.ServicerContext) -> Callable[[], None]:
        """Counts a watch, or refuses it; returns the function that stops counting it."""
        connection: str = context.peer()

        def release() -> None:
            with self._watches_lock:
                self._watches[connection] -= 1
                if not self._watches[connection]:
                    del self._watches[connection]

        with self._watches_lock:
            full = self._watches.total() >= _MAX_WATCHES
            full = full or self._watches.get(connection, 0) >= _MAX_WATCHES_OF_CONNECTION
            if not full:
                self._watches[connection] += 1
        if full:
            context.abort_with_status(_busy())
        return release

    def _first(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """Returns the only request of an RPC; the RPC is cancelled if it does not arrive in time."""
        with self._deadline_timer.at(time.monotonic() + _UNARY_S, context.cancel), self._awaited.one(context):
            for request in requests:
                return _checked(request, context)
        return context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is missing; send one message")


class WatchAnswers:
    """The answers of a health watch, sent by a thread of the pool.

    gRPC's own function waits for the serving thread of gRPC. The health service calls it under a lock that the serving
    thread takes at the end of any watch, so that one watch that ended while another was answered stopped the server
    (seen with grpcio-health-checking 1.85).

    Args:
        send: sends a response, and waits until it is sent; ends the watch for None, and waits for nothing.
        cancel: ends the watch, if a response is not sent in time.
        threads: the pool.
        deadline_timer: calls ``cancel``.
    """

    def __init__(
        self,
        send: Callable[[Any], None],
        cancel: Callable[[], object],
        threads: CountedThreads,
        deadline_timer: DeadlineTimer,
    ) -> None:
        self._send = send
        self._cancel = cancel
        self._threads = threads
        self._deadline_timer = deadline_timer
        self._lock = threading.Lock()  # guards `_latest` and `_is_sending`; nothing is sent under it
        self._latest: Any = None
        self._is_sending = False

    def put(self, response: Any) -> None:
        """Has a response sent; of several that wait, the latest."""
        if response is None:
            self._send(None)
            return
        with self._lock:
            self._latest = response
            if self._is_sending:
                return
            self._is_sending = True
        self._threads.submit(self._send_waiting)

    def _send_waiting(self) -> None:
        while True:
            with self._lock:
                response, self._latest = self._latest, None
                if response is None:
                    self._is_sending = False
                    return
            with self._deadline_timer.at(time.monotonic() + _STREAM_S, self._cancel):
                self._send(response)


class AwaitedChecks:
    """The RPCs whose request has not arrived.

    Beyond the limit, the oldest RPC of the connection with the most of them is cancelled. An honest client sends the
    request together with the RPC, so stalled RPCs are the ones that are cancelled.

    Args:
        limit: the largest number of such RPCs.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_connection: dict[str, dict[int, grpc.ServicerContext]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards the RPCs; none is cancelled under it

    @contextmanager
    def one(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Counts an RPC during the body, and cancels another one beyond the limit."""
        connection: str = context.peer()  # gRPC may return another name once the RPC has ended
        with self._lock:
            excess = self._pop_excess()
            number = next(self._numbers)
            self._by_connection.setdefault(connection, {})[number] = context
        try:
            if excess is not None:
                excess.cancel()
            yield
        finally:
            with self._lock:
                self._pop(connection, number)

    def _pop_excess(self) -> grpc.ServicerContext | None:
        """Removes and returns the RPC to cancel; None below the limit."""
        if sum(map(len, self._by_connection.values())) < self._limit:
            return None
        connection = max(self._by_connection, key=lambda peer: len(self._by_connection[peer]))
        return self._pop(connection, next(iter(self._by_connection[connection])))

    def _pop(self, connection: str, number: int) -> grpc.ServicerContext | None:
        contexts = self._by_connection.get(connection, {})
        context = contexts.pop(number, None)
        if not contexts:
            self._by_connection.pop(connection, None)
        return context


def _lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Returns a parser that yields `_MALFORMED` for invalid bytes, which gRPC itself would answer with INTERNAL."""

    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception:  # noqa: BLE001  # protobuf raises more than its own DecodeError
            return _MALFORMED

    return parse


def _checked(request: Any, context: grpc.ServicerContext) -> Any:
    if request is _MALFORMED:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a message of this method; check its stubs")
    return request


def _busy() -> CallStatus:
    error = CallError(Reason.SERVER_BUSY, "too many health or reflection RPCs are open already; repeat this one later")
    return CallStatus(error, timing_pb2.Timing())

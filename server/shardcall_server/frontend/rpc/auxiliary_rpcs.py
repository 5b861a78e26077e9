"""Questions about health and the contract: kept from taking what calls need, however many and however slow they are."""

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
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.status import CallStatus

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_OURS = "/shardcall.v1."
_HEALTH = "/grpc.health.v1."
_QUESTION_S = 2.0  # for a question to arrive and be answered
_DIALOGUE_S = 10.0
_HEALTH_THREADS = 64
_MAX_QUESTIONS = 512
_MAX_AWAITED = 48  # questions whose request has not come: each holds a thread
_MAX_DIALOGUES = 8
_MAX_WATCHES = 1024
_MAX_WATCHES_OF_CONNECTION = 32
_MALFORMED = object()


class AuxiliaryRpcs(grpc.ServerInterceptor):
    """Gives the services that are not ours threads of their own, an end, and a number that they may be.

    gRPC reads a request on the thread that handles it, for as long as its sender likes; and a dialogue with the
    reflection service holds one until it ends. Watches of the health hold none and last as long as they like. Whoever
    stalls on one connection keeps nobody on another from being answered about the health.

    Args:
        threads: of the calls; they also refuse.
    """

    def __init__(self, threads: CallThreads) -> None:
        self._threads = threads
        self._deadline_timer = DeadlineTimer()
        self._awaited = _Awaited(_MAX_AWAITED)
        self._watches: Counter[str] = Counter()  # by connection
        self._watches_lock = threading.Lock()
        self._rooms = {
            True: CountedThreads(_HEALTH_THREADS, _MAX_QUESTIONS, "health"),
            False: CountedThreads(_MAX_DIALOGUES, _MAX_DIALOGUES, "reflection"),
        }

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the methods that are not ours."""
        handler = continuation(handler_call_details)
        name = handler_call_details.method
        if handler is None or name.startswith(_OURS):
            return handler
        room = self._rooms[name.startswith(_HEALTH)]
        if room.full:
            return self._threads.refusing(lambda _: _busy())
        return self._wrap(handler, room)

    def _wrap(self, handler: Any, room: CountedThreads) -> Handler:
        parse = _lenient(handler.request_deserializer)
        if handler.response_streaming:
            make, method = grpc.stream_stream_rpc_method_handler, handler.stream_stream or handler.unary_stream
        else:
            make, method = grpc.stream_unary_rpc_method_handler, handler.stream_unary or handler.unary_unary
        if getattr(method, "experimental_non_blocking", False):
            behaviour = self._watch(method)
        elif handler.response_streaming:
            behaviour = self._dialogue(method)
        else:
            behaviour = self._question(method)
        behaviour.experimental_thread_pool = room  # type: ignore[attr-defined]  # gRPC's name
        return make(behaviour, parse, handler.response_serializer)

    def _question(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def behaviour(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return method(self._first(requests, context), context)

        return behaviour

    def _dialogue(self, method: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
        def behaviour(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._deadline_timer.at(time.monotonic() + _DIALOGUE_S, context.cancel):
                yield from method((_whole(request, context) for request in requests), context)

        return behaviour

    def _watch(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)  # with gRPC's mark that it keeps no thread
        def behaviour(requests: Iterator[Any], context: grpc.ServicerContext, answer: Callable[[Any], None]) -> None:
            request = self._first(requests, context)
            end = self._begin_watch(context)
            if context.add_callback(end):
                method(request, context, answer)
            else:  # it has ended already
                end()

        return behaviour

    def _begin_watch(self, context: grpc.ServicerContext) -> Callable[[], None]:
        """Counts a watch, or refuses it; returns what counts it out."""
        connection: str = context.peer()

        def end() -> None:
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
        return end

    def _first(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """The request of a question, which is due in time."""
        with self._deadline_timer.at(time.monotonic() + _QUESTION_S, context.cancel), self._awaited.one(context):
            for request in requests:
                return _whole(request, context)
        return context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is missing")


class _Awaited:
    """The questions whose request has not come. One too many ends the oldest of the connection that has most.

    A question that somebody means comes together with its request. So those that stall give way to it, wherever they
    come from.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_connection: dict[str, dict[int, grpc.ServicerContext]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Counts a question during the body, and ends another one if that is one too many."""
        connection: str = context.peer()  # of an RPC that has ended it may be another
        with self._lock:
            excess = self._take_excess()
            number = next(self._numbers)
            self._by_connection.setdefault(connection, {})[number] = context
        try:
            if excess is not None:
                excess.cancel()
            yield
        finally:
            with self._lock:
                self._take(connection, number)

    def _take_excess(self) -> grpc.ServicerContext | None:
        """Takes out the one that is to give way; None where there is room for one more."""
        if sum(map(len, self._by_connection.values())) < self._most:
            return None
        connection = max(self._by_connection, key=lambda each: len(self._by_connection[each]))
        return self._take(connection, next(iter(self._by_connection[connection])))

    def _take(self, connection: str, number: int) -> grpc.ServicerContext | None:
        contexts = self._by_connection.get(connection, {})
        context = contexts.pop(number, None)
        if not contexts:
            self._by_connection.pop(connection, None)
        return context


def _lenient(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Reads a request, or says that it is none; gRPC itself would answer INTERNAL."""

    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except Exception:  # noqa: BLE001  # protobuf raises more than its own DecodeError
            return _MALFORMED

    return parse


def _whole(request: Any, context: grpc.ServicerContext) -> Any:
    if request is _MALFORMED:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is no message of this method")
    return request


def _busy() -> CallStatus:
    error = CallError(Reason.SERVER_BUSY, "too many questions of this kind are open already; ask again later")
    return CallStatus(error, timing_pb2.Timing())

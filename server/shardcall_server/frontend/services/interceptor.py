"""The gRPC interceptor that makes the `ServerCall` of each call and converts its error to a status."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import grpc

from shardcall.v1 import array_service_pb2, kernel_service_pb2, timing_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.chunk_codec import decode
from shardcall_server.frontend.access.floods import FloodGuard
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.policy import INFERENCE_SERVICE, METHODS, RULES
from shardcall_server.frontend.access.principals import Principal
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.rpc.admission import Admission, Advance
from shardcall_server.frontend.rpc.call_threads import CallThreads
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.rpc.queued_calls import QueuedCalls
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.status import STATUS_CODES, CallStatus
from shardcall_server.frontend.rpc.unknown_fields import checked_copy
from shardcall_server.frontend.services.call_outcomes import failed_call
from shardcall_server.frontend.services.call_stream import PATH

T = TypeVar("T")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
HandlerOf: TypeAlias = Callable[[Principal | None], Handler]
"""Returns the handler of an RPC of a principal."""
_OURS = ("/shardcall.v1.", f"/{INFERENCE_SERVICE}/")
_STREAMS_OF_CALLS = frozenset({"ModelStreamInfer"})
_QUEUED = frozenset({"ModelInfer"})
"""Methods whose clients expect a queue, and do not repeat what is refused."""
_CARRIERS: Mapping[str, Callable[[bytes], Any]] = {
    "ExecuteStream": partial(decode, kernel_service_pb2.ExecuteStreamRequest),
    "PutArray": partial(decode, array_service_pb2.PutArrayRequest),
}
"""Deserializers of requests that may hold chunks."""
_FINISHING = frozenset({"GetArray", "DescribeArray", "DeleteArrays", "RenewLease", "OpenSegment", "GetProgress"})
"""Methods that a server that drains admits on connections with calls in progress and with unread results."""
_UNCOUNTED_BYTES = 4 << 10  # of a message
_GRACE_S = 0.5  # lets a handler that notices its deadline report what it was doing


@dataclass(frozen=True)
class TimeLimits:
    """The time limits of calls.

    Attributes:
        max_call_s: the longest duration of a call.
        stream_idle_s: the longest wait for the caller to send or to receive a message.
    """

    max_call_s: float
    stream_idle_s: float


@dataclass(frozen=True)
class Charges:
    """The processor time and the memory that calls are charged.

    Attributes:
        shares: their processor time in the front end.
        budget: the memory of their results until they are sent.
    """

    shares: ProcessorShares
    budget: MemoryBudget

    def hold(self, call: ServerCall, answer: Any) -> None:
        """Counts a message that gRPC holds until the caller has read it.

        Raises:
            CallError: the client, or all clients, hold too much.
        """
        nbytes = len(answer) if isinstance(answer, bytes) else answer.ByteSize()
        if nbytes > _UNCOUNTED_BYTES:
            self.budget.reserve(call.owner, nbytes)
            call.when_ended(partial(self.budget.release, call.owner, nbytes))


class CallInterceptor(grpc.ServerInterceptor):
    """Passes a `ServerCall` instead of gRPC's context to servicers, and converts what they raise to a status.

    An unexpected exception becomes INTERNAL with a fixed message and an id that is also in the log: names, paths and
    tracebacks never leave the server.

    Args:
        gate: authenticates and authorizes calls.
        admission: limits concurrent calls.
        call_recorder: notified of the end of every call.
        floods: notified of connections with admitted calls.
        queue: the pool of calls that wait in a queue.
        drain: as below.
        charges: what calls are charged.

    Attributes:
        drain: counts the calls in progress, and refuses calls while the server shuts down.
    """

    def __init__(
        self,
        limits: TimeLimits,
        gate: Gate,
        admission: Admission,
        threads: CallThreads,
        call_recorder: CallRecorder,
        floods: FloodGuard,
        stream_threads: CountedThreads,
        queue: QueuedCalls,
        drain: Drain,
        charges: Charges,
    ) -> None:
        self._charges = charges
        self._queue = queue
        self._limits = limits
        self._gate = gate
        self._admission = admission
        self._threads = threads
        self._deadline_timer = DeadlineTimer()
        self._call_recorder = call_recorder
        self._floods = floods
        self._stream_threads = stream_threads
        self._handlers: dict[str, HandlerOf] = {}
        self.drain = drain

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Refuses calls that the gate does not admit, and wraps the methods of the contract's services."""
        name = handler_call_details.method
        tokens_version = self._gate.version  # before the token is looked up
        try:
            principal = self._gate.admit(name, handler_call_details.invocation_metadata)
        except CallError as refusal:
            # A server that shuts down has closed its session sockets; the next server may accept the token.
            error = self.drain.refusal or refusal
            return self._threads.refusing(partial(self._reject, name, error, time.monotonic()))
        threads = self._stream_threads if name == PATH else self._threads
        if threads.full and name.startswith(_OURS):
            return self._threads.refusing(partial(self._refuse_busy, name.rpartition("/")[2]))
        if (cached := self._handlers.get(name)) is not None:
            return cached(principal)
        handler = continuation(handler_call_details)
        if handler is None or not name.startswith(_OURS):
            return handler
        if name == PATH:
            return self._wrap_call_stream(handler, principal, tokens_version)
        handler_of = self._handlers[name] = self._wrap(handler, name)
        return handler_of(principal)

    def _wrap(self, handler: Handler, name: str) -> HandlerOf:
        method = name.rpartition("/")[2]
        carrier = _CARRIERS.get(method)
        has_bulk = method == "Execute" or not name.startswith(_OURS[0])  # Execute checks its request in parts
        deserialize = _lenient(carrier or cast(Any, handler.request_deserializer), is_checked=not (carrier or has_bulk))
        serialize = _unless_bytes(cast(Any, handler.response_serializer))
        traits = _MethodTraits(
            method,
            RULES[name].needs_call_slot,
            handler.request_streaming,
            method in _STREAMS_OF_CALLS,
            method in _QUEUED,
        )
        implementation = cast(
            Any, handler.stream_stream or handler.unary_stream or handler.stream_unary or handler.unary_unary
        )
        if handler.response_streaming:
            streaming = self._streaming(implementation, traits)
            return lambda principal: grpc.stream_stream_rpc_method_handler(
                partial(streaming, principal), deserialize, serialize
            )
        unary = self._unary(implementation, traits)

        def handler_of(principal: Principal | None) -> Handler:
            behaviour: Any = partial(unary, principal, has_waited=traits.is_queued and not self.drain.begun)
            if traits.is_queued:
                behaviour.experimental_thread_pool = self._queue  # gRPC's name
            return grpc.stream_unary_rpc_method_handler(behaviour, deserialize, serialize)

        return handler_of

    def _wrap_call_stream(self, handler: Handler, principal: Principal | None, tokens_version: int) -> Handler:
        """Gives call streams their own threads; frames are parsed there, and not by the thread of all connections."""
        serve = cast(Any, handler.stream_stream)
        behaviour: Any = partial(serve, principal=principal, tokens_version=tokens_version)
        behaviour.experimental_thread_pool = self._stream_threads  # gRPC's name
        return grpc.stream_stream_rpc_method_handler(behaviour)

    def _begin(self, context: grpc.ServicerContext, principal: Principal | None) -> ServerCall:
        call = ServerCall.of_rpc(context, self._limits.max_call_s, principal)
        self._floods.admit(call.connection)
        self._call_recorder.begin(call)
        return call

    def _failed(self, name: str, error: Exception, call: ServerCall | None) -> CallStatus:
        return failed_call(self._call_recorder, name, error, call)

    def _unary(self, method: Callable[[Any, ServerCall], Any], traits: _MethodTraits) -> Callable[..., Any]:
        def behaviour(
            principal: Principal | None, requests: Any, context: grpc.ServicerContext, *, has_waited: bool
        ) -> Any:
            call = None
            try:
                call = self._begin(context, principal)
                meter = self._charges.shares.of(call.owner).meter()
                with self._admitted(call, meter.paced(requests), traits, has_waited=has_waited) as arriving, meter:
                    answer = method(arriving if traits.streams else next(arriving), call)
                self._charges.hold(call, answer)
            except Exception as error:  # noqa: BLE001  # the outermost handler
                return context.abort_with_status(self._failed(traits.name, error, call))
            self._call_recorder.finish(traits.name, call)
            return answer

        return behaviour

    def _streaming(
        self, method: Callable[[Any, ServerCall], Generator[Any]], traits: _MethodTraits
    ) -> Callable[[Principal | None, Any, grpc.ServicerContext], Iterator[Any]]:
        def behaviour(principal: Principal | None, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            call = None
            try:
                call = self._begin(context, principal)
                meter = self._charges.shares.of(call.owner).meter()
                with (
                    self._admitted(call, meter.paced(requests), traits) as arriving,
                    meter,
                    closing(method(arriving if traits.streams else next(arriving), call)) as answers,
                ):
                    for answer in meter.paced(answers):
                        with self._idle_limit(call, "the caller took none of the results"):
                            yield answer
            except GeneratorExit:  # the caller has cancelled, or the call was cut off
                cut_off_by = call.cut_off_by if call else None
                reason = cut_off_by.reason if cut_off_by else Reason.CANCELLED
                self._call_recorder.finish(traits.name, call, STATUS_CODES[reason], reason)
                raise
            except Exception as error:  # noqa: BLE001  # the outermost handler
                context.abort_with_status(self._failed(traits.name, error, call))
            self._call_recorder.finish(traits.name, call)

        return behaviour

    @contextmanager
    def _admitted(
        self, call: ServerCall, requests: Iterator[Any], traits: _MethodTraits, *, has_waited: bool = False
    ) -> Iterator[Iterator[Any]]:
        """Admits a call during the body and yields its requests; cuts the call off soon after its deadline.

        A client that stalls blocks the handler's thread in gRPC, which only the end of the RPC unblocks.
        """

        def cut_off() -> None:
            call.cut_off(call.deadline_exceeded("receiving the operands or sending the results"))

        with (
            self.drain.working(call, finishes=traits.name in _FINISHING, has_waited=has_waited),
            self._admission.admitted(call, needs_slot=traits.needs_slot, waits=traits.is_queued) as advance,
            self._deadline_timer.at(call.deadline + _GRACE_S, cut_off),
        ):
            yield self._arriving(call, requests, traits, advance)

    def _arriving(
        self, call: ServerCall, requests: Iterator[Any], traits: _MethodTraits, advance: Advance
    ) -> Iterator[Any]:
        """Yields the requests of a call, each with the idle limit; the call's arrival ends after the last.

        A method with one request is registered as a streaming one, which is the same on the wire: gRPC would otherwise
        read the request before the handler runs, on a thread that waits for it without a limit.
        """
        has_arrived = False
        while True:
            with self._idle_limit(call, "the caller sent nothing"):
                request = next(requests, None)
            if call.cut_off_by is not None:  # gRPC only ends the stream
                raise call.cut_off_by
            if not traits.streams:
                advance(traits.is_queued)
                yield _parsed(request if request is not None else _ParseFailure())
                return
            if request is None:
                if not has_arrived:
                    advance(True)
                return
            if traits.has_calls and not has_arrived:
                advance(True)
                has_arrived = True
            yield _parsed(request)

    def _idle_limit(self, call: ServerCall, what: str) -> AbstractContextManager[None]:
        """Cuts a call off if the body, which waits for the caller, takes longer than the idle limit."""
        limit_s = self._limits.stream_idle_s

        def cut_off() -> None:
            call.cut_off(
                CallError(
                    Reason.STREAM_IDLE,
                    f"{what} for {limit_s:g} s, the longest that the server waits; repeat the call, or start the "
                    "server with a larger --stream-idle-s",
                )
            )

        return self._deadline_timer.at(time.monotonic() + limit_s, cut_off)

    def _reject(self, name: str, error: CallError, began: float, caller: str) -> CallStatus:
        status = CallStatus(error, timing_pb2.Timing(total_seconds=time.monotonic() - began))
        if error.reason is Reason.SCOPE_MISSING:  # the token is valid
            self._floods.admit(caller)
        # A caller without a token must not be able to add method names to the metrics.
        self._call_recorder.refused(
            name.rpartition("/")[2] if name in METHODS else "unknown", caller, status.code, error.reason
        )
        return status

    def _refuse_busy(self, name: str, caller: str) -> CallStatus:
        self._floods.admit(caller)  # the token is valid
        return self._failed(name, self._admission.busy_error(), None)


def caller_of(_: object, rpc_event: Any, __: object, behaviour: Any, *___: object) -> str:
    """Returns the client of a call that waits in a queue, by what gRPC hands to a pool."""
    principal: Principal | None = behaviour.args[0]
    peer: bytes = rpc_event.call.peer()
    return principal.name if principal else peer.decode()


@dataclass(frozen=True)
class _MethodTraits:
    """The properties of a method on which the handling of its calls depends.

    Attributes:
        name: the method's name without its service, "Execute".
        needs_slot: whether it needs a call slot.
        streams: whether its requests are a stream.
        has_calls: whether each request of its stream is a call, and so complete.
        is_queued: whether calls wait for slots.
    """

    name: str
    needs_slot: bool
    streams: bool
    has_calls: bool
    is_queued: bool


class _ParseFailure:
    """A request that could not be parsed, which gRPC itself would answer with INTERNAL, or that is refused."""

    def __init__(self, error: CallError | None = None) -> None:
        self.error = error or CallError(
            Reason.MALFORMED_REQUEST,
            "the request is not a message of this method; use stubs generated from shardcall's protos",
        )


def _lenient(deserialize: Callable[[bytes], Any], *, is_checked: bool) -> Callable[[bytes], Any]:
    def parse(data: bytes) -> Any:
        try:
            request = deserialize(data)
            return checked_copy(request) if is_checked else request
        except CallError as error:
            return _ParseFailure(error)
        except Exception:  # noqa: BLE001  # protobuf raises more than its own DecodeError
            return _ParseFailure()

    return parse


def _unless_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Returns a serializer that passes bytes through, such as serialized chunks."""
    return lambda response: response if isinstance(response, bytes) else serialize(response)


def _parsed(request: Any) -> Any:
    if isinstance(request, _ParseFailure):
        raise request.error
    return request

"""The state of one call in the front end: its deadline, its caller and its timing."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Protocol, Self, TypeVar

import grpc

from shardcall.v1 import kernel_pb2, timing_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_server.frontend.access.principals import Principal
from shardcall_server.frontend.rpc import coroutines
from shardcall_server.frontend.rpc.coroutines import Stage, Waiting
from shardcall_server.frontend.rpc.promise import Waitable
from shardcall_server.frontend.rpc.status import STATUS_CODES

T = TypeVar("T")
TIMEOUT_KEY = "shardcall-timeout"
REQUEST_ID_KEY = "shardcall-request-id"
_NEGLIGIBLE_S = 0.001
_TRACE_KEYS = ("traceparent", "tracestate")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class CallContext(Protocol):
    """The caller's end of a call: gRPC's context of an RPC, or an item of a call stream."""

    def peer(self) -> str:
        """Returns the connection, as gRPC names it."""

    def is_active(self) -> bool:
        """Returns whether the caller waits for the answer."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when the caller stops waiting; returns False if it has stopped already."""

    def cancel(self) -> object:
        """Ends the call."""


class KeptResult(Protocol):
    """A result that a call has left on the mesh."""

    @property
    def handle(self) -> bytes:
        """Its name for the client."""

    @property
    def is_leased(self) -> bool:
        """True until it is deleted, lost or gets a name."""


class _Waits:
    """The threads that wait in calls of one RPC, which wakes them when it ends: by one callback, which gRPC keeps."""

    def __init__(self) -> None:
        self._queues: set[SimpleQueue[object]] = set()  # without a lock, by single operations
        self._is_called_back = False

    @contextmanager
    def woken(self, queue: SimpleQueue[object], context: CallContext) -> Iterator[bool]:
        """Puts None into a queue if the RPC ends during the body; yields whether it is active."""
        self._queues.add(queue)
        try:
            self._is_called_back = self._is_called_back or context.add_callback(self._wake)
            yield self._is_called_back and context.is_active()
        finally:
            self._queues.discard(queue)

    def _wake(self) -> None:
        for queue in self._queues.copy():
            queue.put(None)


class ServerCall:
    """The state of one call, handed to servicers in place of gRPC's context.

    Args:
        context: the caller's end.
        limit_s: the longest duration of the call.
        principal: the caller; None if the server does not authenticate.
        request_id: the client's own id of the call; empty for a new one.
        trace: the trace context that the client sent.
        waits: the waits of the calls of its RPC; None for an item of a call stream, which no thread waits for.

    Attributes:
        connection: the peer, as gRPC names it.
        owner: the name whose quota the call counts against: the principal's, else the connection's.
        weight: the weight of its owner among waiting calls.
        principal_name: the principal whose arrays and segments the call may use; empty without authentication.
        deadline: the moment on the monotonic clock at which the call must have ended.
        request_id: the id in logs and traces; the client's own if it sent one.
        trace: the trace context in the caller's metadata.
        phases: name, seconds and end on the monotonic clock of each part of a phase.
        kernel: the kernel's name; empty until the mesh has confirmed it.
        strategy: the strategy's name; empty until it is known.
        key: the digest of the program's key; empty until it is known.
        plan: the plan of the program; None until it is known.
        cache_hit: whether the program was in the cache; None until that is known.
        received_bytes: bytes of arrays received in messages.
        sent_bytes: bytes of arrays sent in messages.
        shared_bytes: bytes of arrays in the caller's segment, operands and results.
        timing: the timing when `finish` was last called.
        is_dependent: whether it failed because another call has failed, whose result is its operand.
        is_late: whether it began while the server drains.
        kept_results: the results that it has left on the mesh.
        read_handle: the handle of the array that it has read; empty for none.
        cut_off_by: the error with which `cut_off` ended the call; None if it did not.

    Raises:
        CallError: the timeout in the metadata is not a number of 0 or more.
    """

    def __init__(
        self,
        context: CallContext,
        limit_s: float,
        principal: Principal | None = None,
        request_id: str = "",
        trace: Mapping[str, str] | None = None,
        waits: _Waits | None = None,
    ) -> None:
        self._started = time.monotonic()
        self._context = context
        self._waits = waits
        self.timing = timing_pb2.Timing()
        self.principal = principal
        self.connection: str = context.peer()
        self.owner: str = principal.name if principal else self.connection
        self.weight = principal.weight if principal else 1
        self.principal_name: str = principal.name if principal else ""
        self.request_id = _checked_id(request_id) if request_id else secrets.token_hex(8)
        self.trace: Mapping[str, str] = trace or {}
        self.phases: list[tuple[str, float, float]] = []
        self.kernel = self.strategy = self.key = ""
        self.plan: kernel_pb2.Plan | None = None
        self.cache_hit: bool | None = None
        self.received_bytes = self.sent_bytes = self.shared_bytes = 0
        self.cut_off_by: CallError | None = None
        self.is_dependent = self.is_late = False
        self.kept_results: Sequence[KeptResult] = ()
        self.read_handle = b""
        self.limit_s = limit_s
        self.deadline = self._started + limit_s

    @classmethod
    def of_rpc(cls, context: grpc.ServicerContext, max_call_s: float, principal: Principal | None = None) -> Self:
        """Returns the call of an RPC, whose metadata may hold a timeout, an id and a trace context."""
        remaining = context.time_remaining()
        limit_s = max_call_s if remaining is None else min(max_call_s, remaining)
        request_id, trace = "", {}
        for key, value in context.invocation_metadata():
            if key == TIMEOUT_KEY:
                limit_s = min(limit_s, _timeout(value))
            elif key == REQUEST_ID_KEY:
                request_id = _checked_id(value)
            elif key in _TRACE_KEYS and isinstance(value, str):
                trace[key] = value
        return cls(context, limit_s, principal, request_id, trace, _Waits())

    def of_request(self) -> ServerCall:
        """Returns the call of one request of this stream, with its own timing."""
        return ServerCall(self._context, self.remaining_s, self.principal, trace=self.trace, waits=self._waits)

    def limit(self, limit_s: float) -> None:
        """Ends the call sooner: after seconds since it began."""
        if limit_s < self.limit_s:
            self.limit_s, self.deadline = limit_s, self._started + limit_s

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata of the RPC; none of an item of a call stream."""
        read = getattr(self._context, "invocation_metadata", tuple)
        return tuple(read())

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_active(self) -> bool:
        """True while the caller waits for the answer: before the deadline, and until it cancels."""
        return self.remaining_s > 0 and self.cut_off_by is None and self._context.is_active()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of its body to a phase: "receive", "queue", "compile", … ."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float, ended: float | None = None) -> None:
        """Adds seconds to a phase.

        Args:
            name: the phase.
            seconds: the duration of this part.
            ended: its end on the monotonic clock; None for now.
        """
        self.phases.append((name, seconds, time.monotonic() if ended is None else ended))

    def set_program(self, plan: kernel_pb2.Plan, key: str, answer: kernel_pb2.CacheAnswer) -> None:
        """Records the program that the call runs, by its plan and the digest of its key."""
        self.plan = plan
        self.kernel, self.strategy, self.key = plan.kernel, plan.strategy, key
        self.cache_hit = answer.outcome == kernel_pb2.CACHE_OUTCOME_HIT

    def finish(self) -> timing_pb2.Timing:
        """Returns the timing until now."""
        seconds: dict[str, float] = {}
        for name, part, _ in self.phases:
            field = f"{name}_seconds"
            seconds[field] = seconds.get(field, 0.0) + part
        self.timing = timing_pb2.Timing(total_seconds=time.monotonic() - self._started, **seconds)
        return self.timing

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Calls back when the RPC has ended, its answer having been sent or not; not for items of call streams."""
        if not self._context.add_callback(callback):
            callback()

    def wait(self, shared: Waitable[T], doing: str) -> Awaitable[T]:
        """Waits for a future until the deadline, or until the caller cancels; other waiters are not affected.

        Raises:
            CallError: the deadline passed, the caller cancelled, or the future's own error.
        """
        return coroutines.wait(shared, doing)

    def run(self, stage: Stage[T]) -> T:
        """Runs a coroutine of this call on this thread, which waits; not for items of call streams."""
        return coroutines.run(stage, self._block)

    def block(self, shared: Waitable[T], doing: str) -> T:
        """Waits on this thread, as `wait` does; not for items of call streams."""
        if not shared.done():
            self._block((shared, doing))
        return shared.result()

    def _block(self, waiting: Waiting) -> None:
        """Blocks this thread until a future is done.

        Raises:
            CallError: the deadline passed or the caller cancelled.
        """
        assert self._waits is not None
        woken: SimpleQueue[object] = SimpleQueue()
        future, doing = waiting
        future.add_done_callback(woken.put)
        if future.done():
            return
        with self._waits.woken(woken, self._context) as is_active:
            if not is_active:
                raise _cancelled()
            try:
                woken.get(timeout=self.remaining_s)
            except Empty:
                raise self.deadline_exceeded(doing) from None
        if not future.done():
            raise _cancelled()

    def deadline_exceeded(self, doing: str) -> CallError:
        """Returns the error of a call whose deadline passed while ``doing``."""
        passed = f"the call's {self.limit_s:.3g} s passed"
        if self.limit_s < _NEGLIGIBLE_S:  # the client adds its own timeout to the message
            passed = "almost no time was left when the call arrived, and it passed"
        return CallError(
            Reason.DEADLINE_EXCEEDED,
            f"{passed} while {doing}; use a longer timeout",
            field="timeout",
            metadata={"while": doing},
        )

    def cut_off(self, error: CallError) -> None:
        """Ends the RPC from another thread, even while its handler is blocked in gRPC.

        gRPC then sends no details: the caller gets the status and the message, which contains the reason.
        """
        self.cut_off_by = error
        end_rpc(self._context, error)

    def check(self, doing: str) -> None:
        """Raises the error of a call that has ended: its deadline passed, its caller cancelled or it was cut off.

        Args:
            doing: the work that was interrupted, for the error message.
        """
        if self.cut_off_by is not None:
            raise self.cut_off_by.copy()
        if self.remaining_s <= 0:
            raise self.deadline_exceeded(doing)
        if not self._context.is_active():
            raise _cancelled()


def end_rpc(context: CallContext, error: CallError) -> None:
    """Ends an RPC from another thread, as `ServerCall.cut_off` does."""
    # gRPC's public method for this, context.cancel(), sends no message either.
    rpc = getattr(context, "_rpc_event", None)
    if rpc is None:
        context.cancel()
    else:
        # gRPC takes ASCII here.
        message = f"{error.message} ({error.reason})".encode("ascii", "replace").decode()
        rpc.call.cancel(STATUS_CODES[error.reason].value[0], message)


def _timeout(value: str | bytes) -> float:
    try:
        timeout_s = float(value)
    except ValueError:
        timeout_s = -1.0
    if not timeout_s >= 0:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"metadata {TIMEOUT_KEY} is {shorten(value)!r}; send a number of seconds, 0 or more",
            field=TIMEOUT_KEY,
        )
    return timeout_s


def _checked_id(value: str | bytes) -> str:
    if not isinstance(value, str) or not _REQUEST_ID.fullmatch(value):
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"metadata {REQUEST_ID_KEY} is {shorten(value)!r}; send 1 to 64 letters, digits, dots, hyphens or "
            "underscores",
            field=REQUEST_ID_KEY,
        )
    return value


def _cancelled() -> CallError:
    return CallError(Reason.CANCELLED, "the caller cancelled the call")

"""The state of one call in the front end: its deadline, its caller and its timing."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

import grpc

from shardcall.v1 import kernel_pb2, timing_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.access.principals import Principal
from shardcall_server.frontend.rpc.status import STATUS_CODES

T = TypeVar("T")
TIMEOUT_KEY = "shardcall-timeout"
REQUEST_ID_KEY = "shardcall-request-id"
_NEGLIGIBLE_S = 0.001
_TRACE_KEYS = ("traceparent", "tracestate")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ServerCall:
    """The state of one call, handed to servicers in place of gRPC's context.

    Args:
        max_call_s: the server's limit on a call.
        principal: the caller; None if the server does not authenticate.

    Attributes:
        connection: the peer, as gRPC names it.
        owner: the name whose quota the call counts against: the principal's, else the connection's.
        principal_name: the principal whose arrays and segments the call may use; empty without authentication.
        request_id: the id in logs and traces; the client's own if it sent one.
        trace: the trace context in the caller's metadata.
        phases: name, seconds and end on the monotonic clock of each part of a phase.
        kernel: the kernel's name; empty until the mesh has confirmed it.
        strategy: the strategy's name; empty until it is known.
        key: the digest of the program's key; empty until it is known.
        cache_hit: whether the program was in the cache; None until that is known.
        received_bytes: bytes of arrays received in messages.
        sent_bytes: bytes of arrays sent in messages.
        shared_bytes: bytes of arrays in the caller's segment, operands and results.
        cut_off_by: the error with which `cut_off` ended the call; None if it did not.

    Raises:
        CallError: the timeout in the metadata is not a number of 0 or more.
    """

    def __init__(self, context: grpc.ServicerContext, max_call_s: float, principal: Principal | None = None) -> None:
        self._started = time.monotonic()
        self._context = context
        self.timing = timing_pb2.Timing()
        self.principal = principal
        self.connection: str = context.peer()
        self.owner: str = principal.name if principal else self.connection
        self.principal_name: str = principal.name if principal else ""
        self.request_id = ""
        self.trace: dict[str, str] = {}
        self.phases: list[tuple[str, float, float]] = []
        self.kernel = self.strategy = self.key = ""
        self.cache_hit: bool | None = None
        self.received_bytes = self.sent_bytes = self.shared_bytes = 0
        self.cut_off_by: CallError | None = None
        self.limit_s = max_call_s
        remaining = context.time_remaining()
        if remaining is not None:
            self.limit_s = min(self.limit_s, remaining)
        for key, value in context.invocation_metadata():
            if key == TIMEOUT_KEY:
                self.limit_s = min(self.limit_s, _timeout(value))
            elif key == REQUEST_ID_KEY:
                self.request_id = _request_id(value)
            elif key in _TRACE_KEYS and isinstance(value, str):
                self.trace[key] = value
        self.request_id = self.request_id or secrets.token_hex(8)

    @property
    def deadline(self) -> float:
        """The moment on the monotonic clock at which the call must have ended."""
        return self._started + self.limit_s

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def is_wanted(self) -> bool:
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
        field = f"{name}_seconds"
        setattr(self.timing, field, getattr(self.timing, field) + seconds)

    def set_program(self, plan: kernel_pb2.Plan, key: str, answer: kernel_pb2.CacheAnswer) -> None:
        """Records the program that the call runs, by its plan and the digest of its key."""
        self.kernel, self.strategy, self.key = plan.kernel, plan.strategy, key
        self.cache_hit = answer.outcome == kernel_pb2.CACHE_OUTCOME_HIT

    def finish(self) -> timing_pb2.Timing:
        """Returns the timing, with the total until now."""
        self.timing.total_seconds = time.monotonic() - self._started
        return self.timing

    def wait(self, shared: Future[T], doing: str) -> T:
        """Waits for a future until the deadline, or until the caller cancels; other waiters are not affected.

        Raises:
            CallError: the deadline passed, the caller cancelled, or the future's own error.
        """
        woken: SimpleQueue[object] = SimpleQueue()
        shared.add_done_callback(woken.put)
        if not shared.done():
            if not self._context.add_callback(lambda: woken.put(None)):
                raise _cancelled()
            try:
                woken.get(timeout=self.remaining_s)
            except Empty:
                raise self.deadline_exceeded(doing) from None
        if not shared.done():
            raise _cancelled()
        return shared.result()

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
        # gRPC's public method for this, context.cancel(), sends no message either.
        rpc = getattr(self._context, "_rpc_event", None)
        if rpc is None:
            self._context.cancel()
        else:
            rpc.call.cancel(STATUS_CODES[error.reason].value[0], f"{error.message} ({error.reason})")

    def check(self, doing: str) -> None:
        """Raises the error of a call that has ended: its deadline passed, its caller cancelled or it was cut off.

        Args:
            doing: the work that was interrupted, for the error message.
        """
        if self.cut_off_by is not None:
            raise self.cut_off_by
        if self.remaining_s <= 0:
            raise self.deadline_exceeded(doing)
        if not self._context.is_active():
            raise _cancelled()


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


def _request_id(value: str | bytes) -> str:
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

"""One call while it is in the front end: its deadline, its caller and its stopwatch."""

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

from shardcall.v1 import timing_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.access.principals import Principal

T = TypeVar("T")
TIMEOUT_KEY = "shardcall-timeout"
REQUEST_ID_KEY = "shardcall-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Call:
    """The state of one call, handed to servicers in place of gRPC's context.

    Args:
        context: gRPC's.
        max_call_s: the server's own limit.
        principal: who calls; None where the server asks nobody who they are.

    Attributes:
        connection: what it came by, as gRPC names it.
        owner: whose quota it counts against: the principal's, else the connection's.
        request_id: what logs and traces call it; the client's own where it sent one.

    Raises:
        CallError: the timeout in the metadata is not a positive number.
    """

    def __init__(self, context: grpc.ServicerContext, max_call_s: float, principal: Principal | None = None) -> None:
        self._started = time.monotonic()
        self._context = context
        self.timing = timing_pb2.Timing()
        self.principal = principal
        self.connection: str = context.peer()
        self.owner: str = principal.name if principal else self.connection
        self.request_id = ""
        self.limit_s = max_call_s
        remaining = context.time_remaining()
        if remaining is not None:
            self.limit_s = min(self.limit_s, remaining)
        for key, value in context.invocation_metadata():
            if key == TIMEOUT_KEY:
                self.limit_s = min(self.limit_s, _timeout(value))
            elif key == REQUEST_ID_KEY:
                self.request_id = _request_id(value)
        self.request_id = self.request_id or secrets.token_hex(8)

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(0.0, self._started + self.limit_s - time.monotonic())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the time of its body to a phase: "receive", "queue", "compile", … ."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float) -> None:
        """Adds seconds to a phase."""
        field = f"{name}_seconds"
        setattr(self.timing, field, getattr(self.timing, field) + seconds)

    def finish(self) -> timing_pb2.Timing:
        """The timing, with the total until now."""
        self.timing.total_seconds = time.monotonic() - self._started
        return self.timing

    def wait(self, shared: Future[T], doing: str) -> T:
        """Waits for something that others may wait for too; they go on if this caller leaves.

        Args:
            shared: what to wait for.
            doing: what is going on meanwhile, for the error message.

        Raises:
            CallError: the deadline passed, or the caller went away, or what the future holds.
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
        """The error of a call whose deadline passed while ``doing``."""
        return CallError(
            Reason.DEADLINE_EXCEEDED,
            f"the call's {self.limit_s:.3g} s passed while {doing}; give it a longer timeout",
            field="timeout",
            metadata={"while": doing},
        )

    def check(self, doing: str) -> None:
        """Raises the error of a call that has ended: its deadline passed or its caller left."""
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
            f"metadata {TIMEOUT_KEY} is {shorten(value)!r}; give seconds as a number, 0 or more",
            field=TIMEOUT_KEY,
        )
    return timeout_s


def _request_id(value: str | bytes) -> str:
    if not isinstance(value, str) or not _REQUEST_ID.fullmatch(value):
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"metadata {REQUEST_ID_KEY} is {shorten(value)!r}; give 1 to 64 letters, digits, dots, hyphens or "
            "underscores",
            field=REQUEST_ID_KEY,
        )
    return value


def _cancelled() -> CallError:
    return CallError(Reason.CANCELLED, "the caller cancelled the call")

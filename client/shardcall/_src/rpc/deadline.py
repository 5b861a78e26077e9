"""Deadlines of calls."""

from __future__ import annotations

import numbers
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeGuard

import grpc

from shardcall_core.types.errors import DeadlineExceededError, InvalidParameterError

DEFAULT_TIMEOUT_S = 300.0
"""The timeout of a call by default, in seconds."""

MAX_TIMEOUT_S = 1e9
"""The longest timeout, about 31 years; the system's clocks and gRPC fail with longer ones."""

_MAX_SHOWN = 60

waited_s: ContextVar[float] = ContextVar("shardcall_waited_s", default=0.0)
"""Seconds that the present call waited for a thread, which count towards its timeout."""

# The server ends a call itself a little before gRPC does, so that the error's details and timing arrive.
GRACE_S = 0.5
"""Seconds that a client waits longer than the timeout that it sends."""


@dataclass(frozen=True)
class Deadline:
    """The deadline of a call, which may take several RPCs."""

    timeout_s: float
    began_at: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        """Returns the seconds since the call began."""
        return time.monotonic() - self.began_at

    def remaining_s(self) -> float:
        """Returns the seconds left, 0 or more."""
        return max(self.timeout_s - (time.monotonic() - self.began_at), 0.0)

    def is_exceeded(self) -> bool:
        """Returns True after the deadline."""
        return self.remaining_s() <= 0

    def check(self) -> None:
        """Checks that an RPC may begin.

        Raises:
            DeadlineExceededError: after the deadline.
        """
        if self.is_exceeded():
            raise DeadlineExceededError(
                f"the call's {self.timeout_s:g} s passed before it was sent; give it a longer timeout",
                field="timeout",
                status=grpc.StatusCode.DEADLINE_EXCEEDED,
            )

    def rpc_timeout(self) -> tuple[float, float]:
        """Returns the timeouts of the next RPC in seconds: the server's, and gRPC's, which is a little longer."""
        remaining = self.remaining_s()
        return remaining, remaining + GRACE_S


def deadline_after(timeout: float | None, longest_s: float) -> Deadline:
    """Returns the deadline of a call that begins now, or began to wait for a thread earlier.

    Args:
        timeout: seconds; None for the server's maximum.
        longest_s: the server's maximum in seconds; 0 if it has none.

    Raises:
        InvalidParameterError: if ``timeout`` is not a positive number, or larger than ``MAX_TIMEOUT_S``.
    """
    if type(timeout) is float and 0 < timeout <= MAX_TIMEOUT_S:  # usual, and much faster than `is_timeout`
        return Deadline(timeout, time.monotonic() - waited_s.get())
    if timeout is None:
        return Deadline(longest_s or DEFAULT_TIMEOUT_S)
    if not is_timeout(timeout):
        raise InvalidParameterError(
            f"timeout is {_shown(timeout)}; give seconds, more than 0 and at most {MAX_TIMEOUT_S:g}, or None for the "
            "server's maximum",
            field="timeout",
        )
    return Deadline(float(timeout), time.monotonic() - waited_s.get())


def is_timeout(value: object) -> TypeGuard[float]:
    """Returns True for a valid timeout: seconds, more than 0 and at most ``MAX_TIMEOUT_S``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        timeout_s = float(value)
    except OverflowError:  # an integer or a fraction
        return False
    return 0 < timeout_s <= MAX_TIMEOUT_S


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python prints integers of at most 4,300 digits
        text = "a number of too many digits"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"

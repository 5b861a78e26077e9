"""How long a call may take."""

from __future__ import annotations

import math
import numbers
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeGuard

from shardcall._src.types.errors import InvalidParameterError

DEFAULT_TIMEOUT_S = 300.0
"""What a call may take where its caller does not say."""

waited_s: ContextVar[float] = ContextVar("shardcall_waited_s", default=0.0)
"""Seconds that what runs now had to wait for a thread to run in: they count as its own."""

# The server ends a call itself a little before gRPC does, so that the error's details and timing arrive.
_GRACE_S = 0.5


@dataclass(frozen=True)
class Deadline:
    """The time that one call has left, over however many RPCs it takes."""

    timeout_s: float
    began_at: float = field(default_factory=time.monotonic)

    def elapsed_s(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self.began_at

    def remaining_s(self) -> float:
        """Seconds left, 0 at least."""
        return max(self.timeout_s - self.elapsed_s(), 0.0)

    def rpc_timeout(self) -> tuple[float, float]:
        """The timeout of the next RPC: the server's, and gRPC's, which is a little longer."""
        remaining = self.remaining_s()
        return remaining, remaining + _GRACE_S


def deadline(timeout: float | None, longest_s: float) -> Deadline:
    """Returns the deadline that a caller asks for, from now, or from when it began to wait for a thread.

    Args:
        timeout: seconds; None for the longest that the server allows.
        longest_s: the server's maximum; 0 where it tells none.

    Raises:
        InvalidParameterError: if ``timeout`` is no positive number.
    """
    if timeout is None:
        return Deadline(longest_s or DEFAULT_TIMEOUT_S)
    if not is_timeout(timeout):
        raise InvalidParameterError(
            f"timeout is {timeout!r}; give seconds, more than 0, or None for the server's maximum",
            field="timeout",
        )
    return Deadline(float(timeout), time.monotonic() - waited_s.get())


def is_timeout(value: object) -> TypeGuard[float]:
    """Whether a value can be a timeout: seconds, more than 0."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and 0 < float(value) < math.inf

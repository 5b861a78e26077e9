"""How long a call may take."""

from __future__ import annotations

import math
import numbers
import time
from dataclasses import dataclass, field

from shardcall.errors import InvalidParameterError

DEFAULT_TIMEOUT_S = 300.0
"""What a call may take where its caller does not say."""

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
    """Returns the deadline that a caller asks for, from now.

    Args:
        timeout: seconds; None for the longest that the server allows.
        longest_s: the server's maximum; 0 where it tells none.

    Raises:
        InvalidParameterError: if ``timeout`` is no positive number.
    """
    if timeout is None:
        return Deadline(longest_s or DEFAULT_TIMEOUT_S)
    if isinstance(timeout, bool) or not isinstance(timeout, numbers.Real) or not 0 < timeout < math.inf:
        raise InvalidParameterError(
            f"timeout is {timeout!r}; give seconds, more than 0, or None for the server's maximum",
            field="timeout",
        )
    return Deadline(float(timeout))

"""Memory of a call stream in the budget: its prepared calls, and operands of calls that are not answered."""

from __future__ import annotations

from shardcall_core.locks import lock
from shardcall_server.frontend.memory.budget import MemoryBudget

_STEP_BYTES = 256 << 10
PREPARED_FACTOR = 8
"""The memory of a prepared call, in bytes of its message: decoded, it takes 6 to 7 times as much."""


class StreamMemory:
    """The bytes that a call stream holds, which its client's budget counts in steps of 256 KiB.

    Args:
        budget: the budget.
        owner: the client.
    """

    def __init__(self, budget: MemoryBudget, owner: str) -> None:
        self._budget = budget
        self._owner = owner
        self._lock = lock("the lock of a stream's memory", 5)  # guards all of these
        self._used = self._reserved = 0
        self._is_closed = False

    def reserve(self, nbytes: int) -> None:
        """Counts bytes.

        Raises:
            CallError: the client, or all clients, hold too much.
        """
        with self._lock:
            missing = self._used + nbytes - self._reserved
            if missing > 0 and not self._is_closed:
                more = -(-missing // _STEP_BYTES) * _STEP_BYTES
                self._budget.reserve(self._owner, more)
                self._reserved += more
            self._used += nbytes

    def release(self, nbytes: int) -> None:
        """Ends the counting of bytes."""
        with self._lock:
            self._used -= nbytes
            spare = (self._reserved - self._used) // _STEP_BYTES * _STEP_BYTES
            if spare > _STEP_BYTES and not self._is_closed:  # one stays for the next calls
                self._budget.release(self._owner, spare - _STEP_BYTES)
                self._reserved -= spare - _STEP_BYTES

    def close(self) -> None:
        """Releases all bytes; the stream has ended."""
        with self._lock:
            if not self._is_closed and self._reserved:
                self._budget.release(self._owner, self._reserved)
            self._is_closed = True

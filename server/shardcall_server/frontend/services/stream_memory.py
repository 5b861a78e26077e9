"""Memory of a call stream in the budget: its prepared calls, operands of calls that are not answered, and results."""

from __future__ import annotations

from collections.abc import Callable

from shardcall_core.call_error import CallError
from shardcall_core.locks import lock
from shardcall_server.frontend.memory.budget import MemoryBudget

_STEP_BYTES = 256 << 10
_UNCOUNTED_BYTES = 256 << 10  # enough for the prepared calls of ordinary clients
PREPARED_FACTOR = 14
"""The memory of a prepared call, in bytes of its message; decoded, it takes 7 times as much, and a program 13 times."""


class StreamMemory:
    """The bytes that a call stream holds; its client's budget counts those beyond 256 KiB, in steps of as many.

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
            missing = self._used + nbytes - _UNCOUNTED_BYTES - self._reserved
            if missing > 0 and not self._is_closed:
                more = -(-missing // _STEP_BYTES) * _STEP_BYTES
                self._budget.reserve(self._owner, more)
                self._reserved += more
            self._used += nbytes

    def try_reserve(self, nbytes: int, retry: Callable[[], None]) -> bool:
        """Counts bytes if the budget permits; returns whether it does.

        Args:
            nbytes: the bytes.
            retry: called once if they are not counted, when others have released some; whoever does may hold locks.
        """
        for is_last in (False, True):
            try:
                self.reserve(nbytes)
            except CallError:
                if not is_last:  # others may have released some before the budget knows of the wait
                    self._budget.call_when_released(retry)
            else:
                return True
        return False

    def release(self, nbytes: int) -> None:
        """Ends the counting of bytes."""
        with self._lock:
            self._used -= nbytes
            needed = max(0, self._used - _UNCOUNTED_BYTES)
            spare = (self._reserved - needed) // _STEP_BYTES * _STEP_BYTES
            if spare and not self._is_closed:
                self._budget.release(self._owner, spare)
                self._reserved -= spare

    def close(self) -> None:
        """Releases all bytes; the stream has ended."""
        with self._lock:
            if not self._is_closed and self._reserved:
                self._budget.release(self._owner, self._reserved)
            self._is_closed = True

"""How much is worked on at once, and in which order it gets the mesh."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.call import Call


class Admission:
    """Counts the calls that are worked on.

    Args:
        max_calls: how many there may be at once.
    """

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._free = threading.Semaphore(max_calls)

    @contextmanager
    def working(self, call: Call) -> Iterator[None]:
        """Has a place among the calls that are worked on, during the body.

        Raises:
            CallError: SERVER_BUSY.
        """
        if not self._free.acquire(blocking=False):
            raise CallError(
                Reason.SERVER_BUSY,
                f"the server works on {self._max_calls} calls already, the most it takes at once; repeat the "
                "call later",
                metadata={"limit": "max_concurrent_calls"},
            )
        try:
            yield
        finally:
            self._free.release()

"""Rate-limited log warnings about events that any client can cause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from urllib.parse import unquote

import structlog

_EVERY_S = 10.0


class SparseWarning:
    """Logs the first occurrence immediately, and later ones in one line every ten seconds at most.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._clock = clock
        self._lock = threading.Lock()  # guards the next two; lines are logged without it
        self._logged_at = -float("inf")
        self._unlogged = 0

    def note(self, caller: str, **facts: str) -> None:
        """Counts an occurrence, and logs it unless a line was logged recently.

        Args:
            caller: the peer, as gRPC names it.
            facts: further fields of the last occurrence.
        """
        with self._lock:
            self._unlogged += 1
            now = self._clock()
            if now - self._logged_at < _EVERY_S:
                return
            count, self._unlogged, self._logged_at = self._unlogged, 0, now
        last = {f"last_{name}": value for name, value in facts.items()}
        structlog.get_logger().warning(self._event, count=count, last_caller=unquote(caller), **last)

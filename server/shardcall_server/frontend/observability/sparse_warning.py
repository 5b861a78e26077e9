"""Warnings in the log about what anybody may cause: enough to notice it, and never a line for each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from urllib.parse import unquote

import structlog

_EVERY_S = 10.0


class SparseWarning:
    """Logs the first occurrence at once, and those that follow in one line every ten seconds at most.

    Args:
        event: what the line says.
        clock: seconds that never go back.
    """

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._event = event
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at = -float("inf")
        self._untold = 0

    def note(self, caller: str, **facts: str) -> None:
        """Notes an occurrence.

        Args:
            caller: the connection's other end, as gRPC names it.
            facts: the rest that is logged of the last occurrence, by name.
        """
        with self._lock:
            self._untold += 1
            now = self._clock()
            if now - self._told_at < _EVERY_S:
                return
            count, self._untold, self._told_at = self._untold, 0, now
        told = {f"last_{name}": value for name, value in facts.items()}
        structlog.get_logger().warning(self._event, count=count, last_caller=unquote(caller), **told)

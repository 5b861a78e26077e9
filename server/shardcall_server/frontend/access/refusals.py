"""What the log says of callers that are not let in: enough to notice them, and never a line for each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from urllib.parse import unquote

import structlog

from shardcall_server.errors import Reason

_EVERY_S = 10.0


class Refusals:
    """Tells of the first refusal at once, and of those that follow in one line every ten seconds at most.

    Args:
        clock: seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at = -float("inf")
        self._untold = 0

    def note(self, method: str, caller: str, reason: Reason) -> None:
        """Notes a refusal.

        Args:
            method: its bare name.
            caller: the connection's other end, as gRPC names it.
            reason: why.
        """
        with self._lock:
            self._untold += 1
            now = self._clock()
            if now - self._told_at < _EVERY_S:
                return
            count, self._untold, self._told_at = self._untold, 0, now
        structlog.get_logger().warning(
            "callers were not let in",
            count=count,
            last_method=method,
            last_caller=unquote(caller),
            last_reason=reason.value,
        )

"""A thread on which what depends on tokens is checked again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

CHECK_S = 0.25
"""The pause between two checks."""


class TokenWatch:
    """Calls functions again and again, so that what belongs to a removed token ends without a call of its caller."""

    def __init__(self) -> None:
        self._checks: tuple[Callable[[], object], ...] = ()
        self._closing = threading.Event()  # ends the thread
        threading.Thread(target=self._serve, name="token-watch", daemon=True).start()

    def add(self, check: Callable[[], object]) -> None:
        """Calls a function from now on, which must be quick."""
        self._checks += (check,)

    def close(self) -> None:
        """Stops the thread."""
        self._closing.set()

    def _serve(self) -> None:
        log = structlog.get_logger()
        while not self._closing.wait(CHECK_S):
            for check in self._checks:
                try:
                    check()
                except Exception:
                    log.exception("a check of tokens failed")

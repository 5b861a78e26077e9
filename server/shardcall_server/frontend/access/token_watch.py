"""A thread on which what depends on tokens is checked again; the end of what a removed principal has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

CHECK_S = 0.25
"""The pause between two checks."""

ABSENT_S = 10.0
"""The seconds of absence from the token files after which the models and regions of a principal end."""


class RecentPrincipals:
    """The principals of the token files, and those of the last seconds.

    A file that is being rewritten in place may be read without its end. One thread asks.

    Args:
        is_principal: returns whether a principal is in the files now.
        clock: returns the time in seconds.
    """

    def __init__(self, is_principal: Callable[[str], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_principal = is_principal
        self._clock = clock
        self._absent_since: dict[str, float] = {}

    def has(self, name: str) -> bool:
        """Returns whether a principal is in the files, or was in the last seconds."""
        if self._is_principal(name):
            self._absent_since.pop(name, None)
            return True
        return self._clock() - self._absent_since.setdefault(name, self._clock()) < ABSENT_S


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

"""The end of a server: no new calls, and the wait for those at work."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shardcall_server.errors import CallError, Reason


class Draining:
    """Counts the calls at work, and lets none begin once the server is to end."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls = 0
        self._begun = False

    @property
    def refusal(self) -> CallError | None:
        """The error of calls that come now; None while they are taken."""
        if not self._begun:
            return None
        return CallError(Reason.SERVER_DRAINING, "the server is shutting down and takes no new calls; use another")

    @contextmanager
    def working(self) -> Iterator[None]:
        """Is counted during its body.

        Raises:
            CallError: SERVER_DRAINING.
        """
        with self._changed:
            if refusal := self.refusal:
                raise refusal
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def begin(self) -> None:
        """Lets no call begin from now on."""
        with self._changed:
            self._begun = True

    def wait(self, timeout_s: float) -> bool:
        """Waits for the calls at work; returns whether all have ended."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._calls, timeout_s)

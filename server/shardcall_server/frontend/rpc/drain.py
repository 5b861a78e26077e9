"""Drain: no new calls, and the wait for those at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardcall_server.errors import CallError, Reason

_EXPECTED_S = 30.0


class Drain:
    """Counts the calls at work, and lets none begin once the server is to end.

    A client that opens a segment does so for a call that it makes next. That call is expected, and counts as work, from
    the opening of the segment until it comes, for up to ``expected_s``. It may begin while the server drains.

    Args:
        expected_s: how long a call is expected.
        clock: seconds that never go back.
    """

    def __init__(self, expected_s: float = _EXPECTED_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._changed = threading.Condition()
        self._calls = 0
        self._begun = False
        self._expected: dict[bytes, tuple[str, float]] = {}  # connection and end by segment, the oldest first
        self._expected_s = expected_s
        self._clock = clock

    def expect(self, segment_id: bytes, connection: str) -> None:
        """Expects a call that uses a segment, by the connection that opened it."""
        with self._changed:
            self._forget_late()
            self._expected[segment_id] = connection, self._clock() + self._expected_s

    def settle(self, segment_id: bytes) -> None:
        """Expects no further call: one at work uses the segment, or its client has given it back."""
        with self._changed:
            if self._expected.pop(segment_id, None) is not None:
                self._changed.notify_all()

    @property
    def refusal(self) -> CallError | None:
        """The error of calls that come now; None while they are taken."""
        if not self._begun:
            return None
        return CallError(Reason.SERVER_DRAINING, "the server is shutting down and takes no new calls; use another")

    @contextmanager
    def working(self, connection: str = "") -> Iterator[None]:
        """Is counted during its body.

        Args:
            connection: by which the call came.

        Raises:
            CallError: SERVER_DRAINING.
        """
        with self._changed:
            self._forget_late()
            is_expected = any(connection == expected for expected, _ in self._expected.values())
            if (refusal := self.refusal) and not is_expected:
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
        """Waits for the calls at work and those expected; returns whether all have ended."""
        until = self._clock() + timeout_s
        with self._changed:
            while self._calls or self._expected:
                now = self._clock()
                ends = [until, *(end for _, end in self._expected.values() if not self._calls)]
                if now >= until:
                    return False
                self._changed.wait(max(0.0, min(ends) - now))
                self._forget_late()
            return True

    def _forget_late(self) -> None:
        now = self._clock()
        while self._expected and next(iter(self._expected.values()))[1] <= now:
            del self._expected[next(iter(self._expected))]

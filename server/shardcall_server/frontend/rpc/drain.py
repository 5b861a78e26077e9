"""Drain: the refusal of new calls, and the wait for those in progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shardcall_core.call_error import CallError, Reason

_EXPECTED_S = 30.0


class Drain:
    """Counts the calls in progress, and refuses new ones once the server shuts down.

    A client opens a segment for a call that it makes next. That call is expected, and counts as in progress, from the
    opening of the segment until its arrival, for up to ``expected_s``. It may begin while the server drains.

    Args:
        expected_s: the time for which a call is expected.
        clock: a monotonic clock, in seconds.

    Attributes:
        begun: whether the server shuts down.
    """

    def __init__(self, expected_s: float = _EXPECTED_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()  # guards all of these; listeners are called without it
        self._changed = threading.Condition(self._lock)
        self._calls = 0
        self.begun = False
        self._listeners: set[Callable[[], None]] = set()
        self._expected: dict[bytes, tuple[str, float]] = {}  # connection and expiry by segment, the oldest first
        self._expected_s = expected_s
        self._clock = clock

    def expect(self, segment_id: bytes, connection: str) -> None:
        """Expects a call that uses a segment, on the connection that opened it."""
        with self._changed:
            self._remove_expired()
            self._expected[segment_id] = connection, self._clock() + self._expected_s

    def settle(self, segment_id: bytes) -> None:
        """Stops expecting a call: a call uses the segment, or its client has released it."""
        with self._changed:
            if self._expected.pop(segment_id, None) is not None:
                self._changed.notify_all()

    @property
    def refusal(self) -> CallError | None:
        """The error of new calls; None while they are accepted."""
        if not self.begun:
            return None
        return CallError(Reason.SERVER_DRAINING, "the server is shutting down and accepts no new calls; use another")

    @contextmanager
    def working(self, connection: str = "") -> Iterator[None]:
        """Counts a call during the body.

        Args:
            connection: the call's peer, as gRPC names it.

        Raises:
            CallError: SERVER_DRAINING.
        """
        self.enter(connection)
        try:
            yield
        finally:
            self.leave()

    def enter(self, connection: str) -> None:
        """Counts a call until `leave`, as `working` does."""
        with self._lock:
            if self.begun:
                self._remove_expired()
                is_expected = any(connection == expected for expected, _ in self._expected.values())
                if (refusal := self.refusal) is not None and not is_expected:
                    raise refusal
            self._calls += 1

    def leave(self) -> None:
        """Ends `enter`."""
        with self._lock:
            self._calls -= 1
            if self.begun:
                self._changed.notify_all()

    def begin(self) -> None:
        """Refuses new calls from now on."""
        with self._changed:
            self.begun = True
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    @contextmanager
    def notifying(self, listener: Callable[[], None]) -> Iterator[None]:
        """Calls a function when the drain begins during the body; at once if it has begun."""
        with self._changed:
            begun = self.begun
            self._listeners.add(listener)
        if begun:
            listener()
        try:
            yield
        finally:
            with self._changed:
                self._listeners.discard(listener)

    def wait(self, timeout_s: float) -> bool:
        """Waits for the calls in progress and those expected; returns whether all have ended."""
        deadline = self._clock() + timeout_s
        with self._changed:
            while self._calls or self._expected:
                now = self._clock()
                moments = [deadline, *(expiry for _, expiry in self._expected.values() if not self._calls)]
                if now >= deadline:
                    return False
                self._changed.wait(max(0.0, min(moments) - now))
                self._remove_expired()
            return True

    def _remove_expired(self) -> None:
        now = self._clock()
        while self._expected and next(iter(self._expected.values()))[1] <= now:
            del self._expected[next(iter(self._expected))]

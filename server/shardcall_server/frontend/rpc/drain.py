"""Drain: the refusal of new calls, and the wait for those in progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.rpc.server_call import KeptResult, ServerCall

_EXPECTED_S = 30.0
_POLL_S = 0.1  # for the deletion of arrays


class _Expected(NamedTuple):
    """A call or a read that is expected of a client.

    Attributes:
        connection: the client's connection.
        expires_at: the moment from which it is not expected, by the drain's clock.
        result: the array to be read; None for a call.
    """

    connection: str
    expires_at: float
    result: KeptResult | None = None


class Drain:
    """Counts the calls in progress, and refuses new ones once the server shuts down.

    A client opens a segment for a call that it makes next. That call is expected, and counts as in progress, from the
    opening of the segment until its arrival, for up to ``expected_s``. It may begin while the server drains.

    A call that ends while the server drains may leave results on the mesh. That they are read or deleted is expected,
    too. Until then, and while calls of its are in progress, a connection may read arrays, delete them and renew leases.

    A call that waits for a thread when the drain begins counts as in progress, too.

    Args:
        expected_s: the time for which a call or a read is expected.
        clock: a monotonic clock, in seconds.

    Attributes:
        begun: whether the server shuts down.
    """

    def __init__(self, expected_s: float = _EXPECTED_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()  # guards all of these; listeners are called without it
        self._changed = threading.Condition(self._lock)
        self._calls: dict[str, int] = {}  # by connection
        self._waiting = 0  # for a thread
        self.begun = False
        self._listeners: set[Callable[[], None]] = set()
        self._expected: dict[bytes, _Expected] = {}  # by segment or array, the oldest first
        self._read: set[bytes] = set()  # arrays, since the drain began
        self._expected_s = expected_s
        self._clock = clock

    def expect(self, segment_id: bytes, opening: ServerCall) -> None:
        """Expects a call that uses a segment, unless the segment is for a read while the server drains.

        Args:
            segment_id: the segment.
            opening: the call that has opened it.
        """
        with self._changed:
            if not opening.is_late:
                self._expect(segment_id, opening.connection)

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

    def add_waiting(self) -> bool:
        """Counts a call that waits for a thread, unless the server shuts down; returns whether it was counted."""
        with self._lock:
            self._waiting += not self.begun
            return not self.begun

    def remove_waiting(self) -> None:
        """Ends `add_waiting`; the call has ended."""
        with self._changed:
            self._waiting -= 1
            self._changed.notify_all()

    @contextmanager
    def working(self, call: ServerCall, *, finishes: bool = False, has_waited: bool = False) -> Iterator[None]:
        """Counts a call during the body; arguments and errors as of `enter`."""
        self.enter(call, finishes=finishes, has_waited=has_waited)
        try:
            yield
        finally:
            self.leave(call)

    def enter(self, call: ServerCall, *, finishes: bool = False, has_waited: bool = False) -> None:
        """Counts a call until `leave`.

        Args:
            call: the call.
            finishes: whether it reads or deletes arrays or renews a lease.
            has_waited: whether it has waited for a thread since before the drain.

        Raises:
            CallError: SERVER_DRAINING.
        """
        connection = call.connection
        with self._lock:
            refusal = None if has_waited else self.refusal
            if refusal is not None and not self._is_admitted(connection, finishes=finishes):
                raise refusal
            self._calls[connection] = self._calls.get(connection, 0) + 1
            call.is_late = self.begun

    def leave(self, call: ServerCall) -> None:
        """Ends `enter`; the client is expected to read the results that the call has left on the mesh."""
        connection = call.connection
        with self._lock:
            self._calls[connection] -= 1
            if not self._calls[connection]:
                del self._calls[connection]
            if not self.begun:
                return
            if call.read_handle:
                self._read.add(call.read_handle)
                self._expected.pop(call.read_handle, None)
            for result in call.kept_results:
                if result.handle not in self._read:
                    self._expect(result.handle, connection, result)
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
        """Waits for the calls in progress and what is expected; returns whether all have ended."""
        deadline = self._clock() + timeout_s
        with self._changed:
            self._remove_past()
            while self._calls or self._waiting or self._expected:
                now = self._clock()
                moments = [deadline, *(expected.expires_at for expected in self._expected.values() if not self._calls)]
                if now >= deadline:
                    return False
                self._changed.wait(min(max(0.0, min(moments) - now), _POLL_S))
                self._remove_past()
            return True

    def _expect(self, key: bytes, connection: str, result: KeptResult | None = None) -> None:
        self._remove_past()
        self._expected[key] = _Expected(connection, self._clock() + self._expected_s, result)

    def _is_admitted(self, connection: str, *, finishes: bool) -> bool:
        self._remove_past()
        if finishes and connection in self._calls:
            return True
        expected = [expected for expected in self._expected.values() if expected.connection == connection]
        return any(finishes or one.result is None for one in expected)

    def _remove_past(self) -> None:
        """Removes what is not expected any more."""
        now = self._clock()
        past = [
            key
            for key, (_, expires_at, result) in self._expected.items()
            if expires_at <= now or not (result is None or result.is_leased)
        ]
        for key in past:
            del self._expected[key]

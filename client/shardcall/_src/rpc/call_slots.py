"""The calls of a client that are with its server at once: no more than the server takes from one connection."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.types.errors import DeadlineExceededError
from shardcall._src.wire.forks import begin_anew_in_children


class CallSlots:
    """So many places; whoever finds none waits, in the order of coming.

    Without them the server would refuse what is too much, after part of the operands had travelled.

    Args:
        most: how many there are; 0 for as many as are asked for.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Has all places free; in a forked child, whose connection has no calls yet."""
        self._taken = 0
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def one(self, deadline: Deadline) -> Iterator[None]:
        """Has a place during the body.

        Raises:
            DeadlineExceededError: there was none in time.
            CallCancelledError: the caller was cancelled meanwhile.
        """
        if self._most:
            self._take(deadline)
        try:
            yield
        finally:
            if self._most:
                self._give_back()

    def _take(self, deadline: Deadline) -> None:
        with self._lock:
            if self._taken < self._most:
                self._taken += 1
                return
            waiting = _Waiting()
            self._waiting.append(waiting)
        try:
            cancellation.watch(waiting)
            waiting.woken.wait(deadline.remaining_s())
            self._check(waiting, deadline)
        except BaseException:
            with self._lock:
                if not waiting.has_slot:
                    self._waiting.remove(waiting)
                    raise
            self._give_back()
            raise

    def _check(self, waiting: _Waiting, deadline: Deadline) -> None:
        if waiting.has_slot:
            return
        cancellation.check()
        raise DeadlineExceededError(
            f"the call's {deadline.timeout_s:g} s passed while it waited for its turn: this client has {self._most} "
            "calls at its server, the most that one connection may have; give it a longer timeout, or make fewer calls "
            "at once",
            field="timeout",
        )

    def _give_back(self) -> None:
        with self._lock:
            if not self._waiting:
                self._taken -= 1
                return
            first = self._waiting.popleft()
            first.has_slot = True
        first.woken.set()


class _Waiting:
    """A call without a place."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.has_slot = False

    def cancel(self) -> bool:
        """Ends the wait."""
        self.woken.set()
        return True

"""Limits the calls in flight to those that the server accepts from one connection."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.wakeup import Wakeup
from shardcall_core.types.errors import DeadlineExceededError
from shardcall_core.wire.forks import begin_anew_in_children


class CallSlots:
    """Slots for calls; a call without a slot waits, first come, first served.

    Without them the server would refuse excess calls, after some of their operands had been sent.

    Args:
        max_slots: the number of slots; 0 for no limit.
    """

    def __init__(self, max_slots: int = 0) -> None:
        self._max_slots = max_slots
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Frees all slots; in a forked child, whose connection has no calls."""
        self._used = 0
        self._waiting: deque[_AwaitedSlot] = deque()
        self._lock = threading.Lock()  # guards both; nobody is woken under it

    @contextmanager
    def one(self, deadline: Deadline) -> Iterator[None]:
        """Holds a slot during the body.

        Raises:
            DeadlineExceededError: if no slot became free in time.
            CallCancelledError: if the caller was cancelled meanwhile.
        """
        if self._max_slots:
            self._acquire(deadline)
        try:
            yield
        finally:
            if self._max_slots:
                self._release()

    def _acquire(self, deadline: Deadline) -> None:
        with self._lock:
            if self._used < self._max_slots:
                self._used += 1
                return
            waiting = _AwaitedSlot()
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
            self._release()
            raise

    def _check(self, waiting: _AwaitedSlot, deadline: Deadline) -> None:
        if waiting.has_slot:
            return
        cancellation.check()
        raise DeadlineExceededError(
            f"the call's {deadline.timeout_s:g} s passed while it waited for a call slot: this client has "
            f"{self._max_slots} calls in flight, the most that one connection may have; give it a longer "
            "timeout, or make fewer calls at once",
            field="timeout",
        )

    def _release(self) -> None:
        with self._lock:
            if not self._waiting:
                self._used -= 1
                return
            first = self._waiting.popleft()
            first.has_slot = True
        first.woken.set()


class _AwaitedSlot:
    """A call that waits for a slot."""

    def __init__(self) -> None:
        self.woken = Wakeup()  # set with a slot, or by `cancel`
        self.has_slot = False

    def cancel(self) -> bool:
        """Stops the wait."""
        self.woken.set()
        return True

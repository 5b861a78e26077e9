"""Callbacks at moments of the monotonic clock, many of them from one thread."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from shardcall_core.locks import rlock

_MIN_CANCELLED = 256  # fewer cancelled entries are cheaper to keep than to remove


class DeadlineTimer:
    """Calls back at moments of the monotonic clock, unless cancelled before.

    A timer thread for each callback would cost more than most calls do. Callbacks must be quick.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(rlock("the lock of the deadline timer"))  # guards the heap
        self._heap: list[tuple[float, int, list[Callable[[], object]]]] = []
        self._numbers = itertools.count()
        self._cancelled = 0
        self._thread = threading.Thread(target=self._serve, name="deadline-timer", daemon=True)
        self._thread.start()

    @contextmanager
    def at(self, moment: float, callback: Callable[[], object]) -> Iterator[None]:
        """Calls back at a moment, unless the body has ended before."""
        cancel = self.schedule(moment, callback)
        try:
            yield
        finally:
            cancel()

    def schedule(self, moment: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Calls back at a moment; returns the function that cancels this."""
        pending = [callback]  # emptied by the timer or by the cancellation, whichever comes first
        with self._changed:
            entry = (moment, next(self._numbers), pending)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify()

        def cancel() -> None:
            with self._changed:
                if pending:
                    pending.clear()
                    self._cancelled += 1
                    self._remove_cancelled()

        return cancel

    def _remove_cancelled(self) -> None:
        """Removes cancelled entries if they are most of the heap."""
        if self._cancelled > _MIN_CANCELLED and self._cancelled > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2]]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _serve(self) -> None:
        log = structlog.get_logger()
        while True:
            with self._changed:
                callback = self._next()
            try:
                callback()
            except Exception:
                log.exception("a deadline callback failed")

    def _next(self) -> Callable[[], object]:
        """Waits for the next moment; returns its callback."""
        while True:
            wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
            if wait_s is None or wait_s > 0:
                self._changed.wait(wait_s)
                continue
            _, _, pending = heapq.heappop(self._heap)
            if pending:
                return pending.pop()
            self._cancelled -= 1

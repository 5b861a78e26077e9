"""Doing something at a given moment, for many at once and from one thread."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

_MIN_CANCELLED = 256  # fewer in the heap cost nothing worth the work of taking them out


class DeadlineTimer:
    """Calls back at moments of the monotonic clock, unless that is cancelled before.

    A timer thread for each would cost more than most calls do. What is called back must be quick.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int, list[Callable[[], object]]]] = []
        self._numbers = itertools.count()
        self._cancelled = 0
        self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
        self._thread.start()

    @contextmanager
    def at(self, moment: float, ring: Callable[[], object]) -> Iterator[None]:
        """Calls back at a moment, unless the body is done before."""
        waiting = [ring]  # emptied by who rings or cancels, whichever is first
        with self._changed:
            entry = (moment, next(self._numbers), waiting)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                if waiting:
                    waiting.clear()
                    self._cancelled += 1
                    self._tidy()

    def _tidy(self) -> None:
        """Takes out what was cancelled, when that is most of it."""
        if self._cancelled > _MIN_CANCELLED and self._cancelled > len(self._heap) // 2:
            self._heap = [entry for entry in self._heap if entry[2]]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _run(self) -> None:
        log = structlog.get_logger()
        while True:
            with self._changed:
                ring = self._next()
            try:
                ring()
            except Exception:
                log.exception("an alarm failed")

    def _next(self) -> Callable[[], object]:
        """Waits for the next moment; returns what is to be called then."""
        while True:
            wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
            if wait_s is None or wait_s > 0:
                self._changed.wait(wait_s)
                continue
            _, _, waiting = heapq.heappop(self._heap)
            if waiting:
                return waiting.pop()
            self._cancelled -= 1

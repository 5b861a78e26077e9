"""A thread that takes its next task from a condition."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from shardcall_core.locks import rlock

T = TypeVar("T")
_CLOSE_S = 5.0


class TaskThread(ABC, Generic[T]):
    """Performs one task after the other, each as soon as `_pop` returns it.

    Args:
        poll_s: the interval at which `_pop` is called while tasks wait for a change that is not notified.
    """

    def __init__(self, name: str, poll_s: float) -> None:
        self._lock = rlock(f"the lock of the tasks of {name}")  # guards the tasks
        self._changed = threading.Condition(self._lock)
        self._poll_s = poll_s
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def close(self) -> None:
        """Ends the thread after its present task; the mesh has ended before."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(_CLOSE_S)

    @abstractmethod
    def _pop(self) -> T | None:
        """Returns the task to be performed now, if there is one. The thread holds `_lock`."""

    @abstractmethod
    def _has_tasks(self) -> bool:
        """Returns whether any task waits. The thread holds `_lock`."""

    @abstractmethod
    def _perform(self, task: T) -> None:
        """Performs a task."""

    def _work(self) -> None:
        while (task := self._next()) is not None:
            self._perform(task)

    def _next(self) -> T | None:
        with self._changed:
            while not self._closed:
                if (task := self._pop()) is not None:
                    return task
                self._changed.wait(self._poll_s if self._has_tasks() else None)
        return None

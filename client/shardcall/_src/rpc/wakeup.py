"""An event that signal handlers cannot spoil."""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Wakeup:
    """An event for one waiting thread, which may be set by any.

    `threading.Event` takes a lock in Python code. An exception that the handler of a signal raises just then leaves
    the lock held, and the thread that sets the event hangs.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Ends the wait, and later ones at once."""
        self._queue.put(None)

    def is_set(self) -> bool:
        """Returns True if a wait would end at once."""
        return bool(self._queue.qsize())

    def clear(self) -> None:
        """Makes later waits last until `set`."""
        while self._queue.qsize():
            self._queue.get()

    def wait(self, timeout_s: float) -> bool:
        """Waits until the event is set; returns False after the timeout."""
        try:
            self._queue.get(timeout=max(timeout_s, 0.0))
        except Empty:
            return False
        self._queue.put(None)
        return True

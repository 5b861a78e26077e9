"""What a private server prints to its standard error, passed on to this process's."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections import deque

_LAST_LINES = 20
_WAITING_LINES = 1000


class ServerLog:
    """The lines of a server, passed on by a thread of their own: whoever reads them never waits for who takes them.

    They wait until `tell`. Where too many do, the oldest are left out, and how many is told.
    """

    def __init__(self) -> None:
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._ended = False
        self._more = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, line: str) -> None:
        """Takes one more."""
        with self._more:
            self._last.append(line)
            if len(self._waiting) == _WAITING_LINES:
                self._waiting.popleft()
                self._left_out += 1
            self._waiting.append(line)
            self._more.notify()

    def last(self) -> list[str]:
        """The last few lines."""
        with self._more:
            return list(self._last)

    def tell(self) -> None:
        """Passes on what has come, and from now on what comes."""
        self._thread = threading.Thread(target=self._run, name="shardcall-local-log", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Tells that nothing more comes."""
        with self._more:
            self._ended = True
            self._more.notify()

    def join(self, timeout_s: float) -> None:
        """Waits until all has been passed on."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._more:
                self._more.wait_for(lambda: self._waiting or self._ended)
                lines, self._waiting = self._waiting, deque()
                left_out, self._left_out = self._left_out, 0
            if not lines:
                return
            if left_out:
                _write(f"shardcall server: {left_out} lines are left out\n")
            for line in lines:
                _write(for_people(line))


def for_people(line: str) -> str:
    """A line of the server's log, which is JSON where it is no terminal, as people read it; others as they are."""
    try:
        told = json.loads(line)
        event, level = told.pop("event"), told.pop("level")
    except (ValueError, TypeError, AttributeError, KeyError):
        return line
    told.pop("timestamp", None)
    trace = told.pop("exception", "")
    facts = "".join(f" {name}={value}" for name, value in told.items())
    return f"shardcall server: {level}: {event}{facts}\n" + (f"{trace}\n" if trace else "")


def _write(text: str) -> None:
    """Writes to what is this process's standard error by now: notebooks and tests put another there."""
    with contextlib.suppress(Exception):  # it may be closed, or anything
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()

"""Forwards the standard error of a private server to this process's."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections import deque

_LAST_LINES = 20
_WAITING_LINES = 1000


class ServerLog:
    """The output lines of a server, written by a thread, so that reading them never waits for the writing.

    Lines are held until `start`. The oldest of too many are dropped, and their number is reported.
    """

    def __init__(self) -> None:
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._waiting: deque[str] = deque()
        self._left_out = 0
        self._ended = False
        self._more = threading.Condition()  # guards all of these; lines are written without it
        self._thread: threading.Thread | None = None

    def add(self, line: str) -> None:
        """Adds a line."""
        with self._more:
            self._last.append(line)
            if len(self._waiting) == _WAITING_LINES:
                self._waiting.popleft()
                self._left_out += 1
            self._waiting.append(line)
            self._more.notify()

    def last(self) -> list[str]:
        """Returns the last few lines."""
        with self._more:
            return list(self._last)

    def start(self) -> None:
        """Starts writing lines, those held first."""
        self._thread = threading.Thread(target=self._write_lines, name="shardcall-local-log", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Marks the end of the output."""
        with self._more:
            self._ended = True
            self._more.notify()

    def join(self, timeout_s: float) -> None:
        """Waits until all lines have been written."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _write_lines(self) -> None:
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
    """Returns a JSON line of the server's log in readable form, and other lines unchanged."""
    try:
        record = json.loads(line)
        event, level = record.pop("event"), record.pop("level")
    except (ValueError, TypeError, AttributeError, KeyError):
        return line
    record.pop("timestamp", None)
    trace = record.pop("exception", "")
    facts = "".join(f" {name}={value}" for name, value in record.items())
    return f"shardcall server: {level}: {event}{facts}\n" + (f"{trace}\n" if trace else "")


def _write(text: str) -> None:
    """Writes to this process's present standard error, which notebooks and tests replace."""
    with contextlib.suppress(Exception):  # a replacement may raise anything
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()

"""Standard error of a process that serves: a thread writes to it, and what cannot be written is dropped and counted."""

from __future__ import annotations

import atexit
import io
import os
import select
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import TextIO

_MAX_WAITING = 4096  # pieces of text
_EXIT_S = 0.5


class LogOutput(io.TextIOBase):
    """A text stream whose `write` neither waits nor fails, for a file descriptor that may do both.

    The disk of a log may be full, and its pipe closed or not read.

    Args:
        fd: the file descriptor.
    """

    encoding = "utf-8"

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.dropped_lines = 0
        """Number of lines that were not written."""
        self.start()

    def start(self) -> None:
        """Starts the thread, which a forked child does not have."""
        self._queue: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._lock = threading.Lock()  # guards `dropped_lines`
        threading.Thread(target=self._serve, name="log", daemon=True).start()

    def write(self, text: str, /) -> int:
        """Has text written by the thread; drops it if too much waits already."""
        data = text.encode(errors="backslashreplace")
        if self._queue.qsize() < _MAX_WAITING:
            self._queue.put(data)
        else:
            self._drop(data)
        return len(text)

    def wait_written(self, timeout_s: float) -> None:
        """Waits until the text so far is written or dropped."""
        written = threading.Event()
        self._queue.put(written)
        written.wait(timeout_s)

    def fileno(self) -> int:
        """Returns the file descriptor."""
        return self._fd

    def isatty(self) -> bool:
        """Returns whether the file descriptor is a terminal."""
        return os.isatty(self._fd)

    def writable(self) -> bool:
        """Returns True."""
        return True

    def _serve(self) -> None:
        while True:
            item = self._queue.get()
            if isinstance(item, threading.Event):
                item.set()
                continue
            try:
                self._write(item)
            except OSError:
                self._drop(item)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another process has made the file not blocking
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()

    def _drop(self, data: bytes) -> None:
        with self._lock:
            self.dropped_lines += data.count(b"\n")


def use_log_output() -> None:
    """Replaces this process's standard error by a `LogOutput`, unless the system starts no thread for it."""
    if isinstance(sys.stderr, LogOutput):
        return
    original = sys.stderr
    with suppress(RuntimeError):
        sys.stderr = output = LogOutput(2)
        atexit.register(_restore, output, original)


def restart_log_output() -> None:
    """Has a forked child write its log."""
    if isinstance(sys.stderr, LogOutput):
        sys.stderr.start()


def _restore(output: LogOutput, original: TextIO) -> None:
    """Gives the text that waits a moment to be written, at the exit of the process."""
    output.wait_written(_EXIT_S)
    sys.stderr = original


def finish_log() -> None:
    """Gives the text that waits a moment to be written, before `os._exit`."""
    if isinstance(sys.stderr, LogOutput):
        sys.stderr.wait_written(_EXIT_S)


def dropped_lines() -> int:
    """Returns the number of lines of this process and its workers that were not written to standard error."""
    return sys.stderr.dropped_lines if isinstance(sys.stderr, LogOutput) else 0

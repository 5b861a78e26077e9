"""Standard streams and signals of the processes of a server, which may be closed, fail or mean nothing to it."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress


def open_standard_streams() -> None:
    """Opens /dev/null in place of standard streams that are closed, whose descriptors sockets would get otherwise."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            with suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest descriptor that is free
    for name, fd in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def print_line(line: str) -> None:
    """Prints a line on standard output; if that fails, later lines go nowhere."""
    try:
        print(line, flush=True)  # noqa: T201
    except OSError:  # a full disk, or a pipe whose reader has gone
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def stop_signals() -> tuple[int, ...]:
    """Returns the signals that stop this process, and has it ignore others that would end it by default.

    The end of its terminal (SIGHUP) stops a process that has one, unless it was started to ignore that, as by nohup.
    """
    ignored = [signal.SIGUSR1, signal.SIGUSR2]
    stopping = [signal.SIGTERM, signal.SIGINT]
    has_terminal = any(os.isatty(fd) for fd in range(3)) and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    (stopping if has_terminal else ignored).append(signal.SIGHUP)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    return tuple(stopping)

"""Servers that child processes start, and that end with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def started(module: str, *arguments: str) -> Iterator[str]:
    """Starts a module as a server; yields the first line that it prints, its address."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def announce(address: str) -> None:
    """Reports the server's address to the process that started it."""
    print(address, flush=True)


def wait_for_end() -> None:
    """Waits until the process that started this one ends or closes the pipe."""
    sys.stdin.read()

"""A server that a child process starts for itself, and that ends with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def started(module: str, *arguments: str) -> Iterator[str]:
    """Starts a module as a server; gives the first line that it prints, which is where it listens."""
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
    """Waits until the starter ends or lets go."""
    sys.stdin.read()

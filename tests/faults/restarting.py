"""A server that is killed and started again, at the same address."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from servers import ServerProcess, running_server


class RestartingServer:
    """A server process, and those that come after it.

    Args:
        flags: of the command line.
        devices: of each.

    Attributes:
        address: of all of them, "host:port".
    """

    def __init__(self, *flags: str, devices: int = 8) -> None:
        self.address = ""
        self._flags = flags
        self._devices = devices
        self._stack = ExitStack()
        self._running: ServerProcess | None = None

    @property
    def running(self) -> ServerProcess:
        """The process that runs."""
        assert self._running is not None
        return self._running

    def start(self) -> None:
        """Starts one, and waits until it is ready."""
        self._running = self._stack.enter_context(
            running_server(*self._flags, devices=self._devices, why="it is killed")
        )
        if not self.address:
            self.address = self.running.address
            self._flags = (*self._flags, "--port", self.address.rpartition(":")[2])
        assert self.running.address == self.address

    def kill(self) -> None:
        """Kills the front end, and waits for its end."""
        self.running.process.kill()
        self.running.process.wait(60)

    def children(self) -> list[int]:
        """The ids of its processes but the front end."""
        return self.running.worker_pids()

    def stop(self, pid: int) -> None:
        """Stops a process until it is killed."""
        os.kill(pid, signal.SIGSTOP)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

"""A server that is killed or drained and started again, at the same address."""

import signal
from contextlib import ExitStack
from typing import Self

from servers import ServerProcess, running_server


class RestartingServer:
    """A server process, and those that come after it.

    Args:
        flags: of the command line.
        devices: of each.

    Attributes:
        address: of all of them, "host:port".
        running: the process that runs.
    """

    running: ServerProcess

    def __init__(self, *flags: str, devices: int = 8) -> None:
        self.address = ""
        self._flags = flags
        self._devices = devices
        self._stack = ExitStack()

    def start(self) -> None:
        """Starts one, and waits until it is ready."""
        port = self.address.rpartition(":")[2] or "0"
        server = running_server(*self._flags, "--port", port, devices=self._devices, why="it is killed")
        self.running = self._stack.enter_context(server)
        self._ended = False  # by `kill` or `drain`
        self.address = self.running.address

    def kill(self) -> None:
        """Kills the front end, and waits for its end."""
        self._expect_end()
        self.running.process.kill()
        self.running.process.wait(60)

    def drain(self) -> None:
        """Has the server drained, and waits for its end."""
        self._expect_end()
        self.running.process.send_signal(signal.SIGTERM)
        assert self.running.process.wait(60) == 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._expect_end()
        finally:
            self._stack.close()

    def _expect_end(self) -> None:
        status = self.running.process.poll()
        assert status is None or self._ended, f"the front end ended by itself, with status {status}"
        self._ended = True

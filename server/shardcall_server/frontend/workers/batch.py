"""Batches of commands that share writes to the links."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType

from shardcall_server.frontend.workers.worker_connection import WorkerConnection


class Batch(threading.local):
    """The commands that one thread sends while it is in the body; bodies may be nested.

    The order of the commands of all threads does not change. The body must not wait for an answer.

    Attributes:
        depth: the number of bodies that the thread is in.
    """

    def __init__(self, connections: Sequence[WorkerConnection]) -> None:
        self._connections = connections
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.depth -= 1
        if not self.depth:
            for connection in self._connections:
                connection.worker.link.flush()

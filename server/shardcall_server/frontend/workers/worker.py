"""What a session asks of a worker, wherever that runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from shardcall.v1 import kernel_pb2
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.frontend.workers.exit_reason import StopRequest
from shardcall_worker.v1 import link_pb2


class WorkerLink(Protocol):
    """The way to a worker and back; see `framing.Link`."""

    @property
    def readable(self) -> bool:
        """Whether something has come that `frames` has not read yet."""

    def has_capacity(self, nbytes: int) -> bool:
        """Whether so much more is kept for a worker that does not read."""

    def send(self, body: bytes, fd: int | None = None) -> None:
        """Sends one message."""

    def frames(self) -> Iterator[tuple[bytes, int | None]]:
        """Yields messages as they come, and ends when the worker is gone."""

    def close(self) -> None:
        """Ends it for both sides."""


class DataLink(WorkerLink, Protocol):
    """The way to a worker with which no memory is shared: arrays go beside the messages.

    Attributes:
        moved: how many parts of arrays went either way.
    """

    moved: int

    def moved_for(self, call_id: int) -> int:
        """How far the arrays of a command have come that has not been answered: a number that grows."""

    def send_with_data(
        self,
        message: link_pb2.FrontEndMessage,
        plan: kernel_pb2.Plan,
        table: BlockTable,
        memory: Sequence[MemoryFile],
    ) -> None:
        """Sends a command, and of its operands what this worker's devices hold.

        Args:
            message: the command; where its arrays are in memory files, those are named in ``memory``.
            plan: how its arrays lie on the mesh.
            table: tells which blocks are whose.
            memory: the files; used until the answer has come or the link is closed.
        """


class Worker(Protocol):
    """A worker process.

    Attributes:
        host: the name of its host; empty for the front end's own.
        link: the way to it.
        data_link: the same, where no memory is shared with it; else None.
        lost: why it is gone, where that is known better than by its exit status.
    """

    host: str
    link: WorkerLink
    data_link: DataLink | None
    lost: StopRequest | None

    @property
    def pid(self) -> int:
        """Its process id, on its host."""

    @property
    def ended(self) -> bool:
        """Whether it is known to be gone."""

    @property
    def cpu_ticks(self) -> int:
        """The processor time that it has used, in its system's clock ticks; 0 where that is not known."""

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, after waiting for that."""

    def terminate(self) -> int:
        """Ends a process that has closed its link; returns its exit status, or minus the signal that ended it."""

    def kill(self) -> None:
        """Ends it at once."""


class WorkerSource(Protocol):
    """Where the workers of the next session come from."""

    @property
    def spare_ready(self) -> bool:
        """Whether others stand by."""

    def take(self) -> tuple[Sequence[Worker], bool]:
        """Workers that wait for `Start`, in the order of their processes, and whether all stood by.

        Raises:
            RuntimeError: `close` was called.
        """

    def look(self, passed_s: float) -> None:
        """Done several times a second; told the time since the last look."""

    def renew(self) -> None:
        """Has spares started where some are wanted."""

    def close(self) -> None:
        """Ends what stands by, and starts nothing any more."""

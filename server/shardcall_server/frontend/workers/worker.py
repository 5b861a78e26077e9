"""Interfaces of workers and of the links to them, for workers on this host and on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from shardcall.v1 import kernel_pb2
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.frontend.workers.exit_reason import StopRequest
from shardcall_server.link.framing import Frame
from shardcall_worker.v1 import link_pb2


class WorkerLink(Protocol):
    """A message transport to a worker and back; see `framing.Link`."""

    @property
    def readable(self) -> bool:
        """True if data has come that `frames` has not read yet."""

    def has_capacity(self, nbytes: int) -> bool:
        """Returns whether the backlog of a worker that does not read has this many bytes left."""

    def send(self, body: bytes, fd: int | None = None, *, more: bool = False) -> None:
        """Sends one message, which may wait for the next one or `flush` if there are ``more``."""

    def flush(self) -> None:
        """Sends the messages that wait for others."""

    def batches(self) -> Iterator[list[Frame]]:
        """Yields the messages of each read together, until the worker is gone."""

    def close(self) -> None:
        """Closes the link for both sides."""


class DataLink(WorkerLink, Protocol):
    """A transport to a worker that shares no memory with the front end: arrays travel beside the messages.

    Attributes:
        moved: number of chunks of arrays sent and received.
    """

    moved: int

    def moved_for(self, call_id: int) -> int:
        """Returns the progress of the arrays of a pending command, a number that grows."""

    def open_file(self, file: OpenFile) -> None:
        """Has the worker's host open a file on disk, before the first command that names it."""

    def send_with_data(
        self,
        message: link_pb2.FrontEndMessage,
        plan: kernel_pb2.Plan,
        table: BlockTable,
        memory: Sequence[MemoryFile],
    ) -> None:
        """Sends a command with the blocks of its operands that this worker's devices hold.

        Args:
            message: the command; ``memory`` holds the memory files that it names.
            plan: the placement of its arrays on the mesh.
            table: the blocks of each process.
            memory: the memory files; used until the answer has come or the link is closed.
        """


class Worker(Protocol):
    """A worker process.

    Attributes:
        host: the name of its host; empty for the front end's own.
        link: the transport to it.
        data_link: the same transport if no memory is shared with the worker; else None.
        lost: the reason for its loss, if that says more than its exit status.
    """

    host: str
    link: WorkerLink
    data_link: DataLink | None
    lost: StopRequest | None

    @property
    def out_of_memory(self) -> bool:
        """True if the kernel has ended processes beside it for lack of memory since it started, once it has exited."""

    @property
    def last_output(self) -> str:
        """The last line that it printed; empty if there is none, or it is on another host."""

    @property
    def pid(self) -> int:
        """The process id on its host."""

    @property
    def ended(self) -> bool:
        """True once the worker is known to have exited."""

    @property
    def cpu_ticks(self) -> int:
        """The CPU time used, in clock ticks of its system; 0 if unknown."""

    def wait(self, timeout_s: float) -> bool:
        """Waits for the worker to exit; returns False if it has not."""

    def terminate(self) -> int:
        """Closes the link and ends the process; returns its exit status, or minus the number of the signal."""

    def kill(self) -> None:
        """Kills the process at once."""


class WorkerSource(Protocol):
    """A source of workers for the next session."""

    @property
    def spare_ready(self) -> bool:
        """True if spare workers stand by."""

    def acquire(self) -> tuple[Sequence[Worker], bool]:
        """Returns workers that wait for `Start`, in the order of their processes, and whether all of them stood by.

        Raises:
            RuntimeError: `close` was called.
        """

    def tick(self, passed_s: float) -> None:
        """Does periodic work, several times a second; ``passed_s`` is the time since the last call."""

    def start_spares(self) -> None:
        """Starts the spare workers that are missing."""

    def close(self) -> None:
        """Kills spare workers and starts no more."""

"""Connection of a session to one of its workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.frontend.workers.exit_reason import ExitCause, StopRequest
from shardcall_server.frontend.workers.worker import Worker
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2


class WorkerConnection:
    """Connection of a session to one of its workers.

    Args:
        index: the index of the worker's process in the mesh.

    Attributes:
        was_killed: whether the worker was killed because another had exited.
        heartbeat: the last heartbeat.
    """

    def __init__(self, worker: Worker, index: int) -> None:
        self.worker = worker
        self.index = index
        self.was_killed = False
        self.heartbeat = link_pb2.Heartbeat()
        self._messages = 0
        self._handles = False
        self._attached: set[int] = set()

    @property
    def activity(self) -> int:
        """Number of messages received and of chunks of arrays moved: it grows while the worker is alive."""
        data_link = self.worker.data_link
        return self._messages + (data_link.moved if data_link is not None else 0)

    @property
    def has_unread(self) -> bool:
        """True if the worker has sent a message that has not been handled."""
        return self._handles or self.worker.link.readable

    def batches(self) -> Iterator[list[link_pb2.WorkerMessage]]:
        """Yields the worker's messages until it is gone, those of each read together."""
        for batch in self.worker.link.batches():
            self._messages += len(batch)
            self._handles = True
            yield [link_pb2.WorkerMessage.FromString(body) for body, _ in batch]
            self._handles = False

    def send(
        self,
        message: link_pb2.FrontEndMessage,
        body: bytes,
        memory: Sequence[MemoryFile],
        plan: kernel_pb2.Plan | None,
        table: BlockTable | None,
        *,
        more: bool = False,
    ) -> None:
        """Sends a command.

        Args:
            body: the command, serialized.
            memory: the memory files that it names; the worker maps those that it has not mapped yet.
            plan: the placement of its arrays on the mesh.
            table: the blocks of each process.
            more: whether other commands or `flush` follow at once.

        Raises:
            LinkClosedError: the worker is gone.
            LinkFullError: the worker does not read; the message was not sent.
        """
        for file in memory:
            self._attach(file)
        data_link = self.worker.data_link
        if data_link is not None and plan is not None and table is not None:
            data_link.send_with_data(message, plan, table, memory)
            return
        self.worker.link.send(body, more=more)

    def _attach(self, file: MemoryFile) -> None:
        """Gives the worker a file that it has not: on another host its path, since descriptors stay on theirs."""
        if file.memory_id in self._attached:
            return
        if (data_link := self.worker.data_link) is None:
            attach = link_pb2.AttachMemory(memory_id=file.memory_id, size_bytes=file.nbytes)
            self.worker.link.send(link_pb2.FrontEndMessage(attach_memory=attach).SerializeToString(), file.fd)
        elif isinstance(file, OpenFile):
            data_link.open_file(file)
        else:  # parts of it travel with the commands
            return
        self._attached.add(file.memory_id)

    def detach(self, memory_id: int) -> None:
        """Makes the worker unmap a memory file."""
        if memory_id in self._attached:
            self._attached.remove(memory_id)
            self.notify(link_pb2.FrontEndMessage(detach_memory=link_pb2.DetachMemory(memory_id=memory_id)))

    def notify(self, message: link_pb2.FrontEndMessage) -> None:
        """Sends a message that has no answer; errors are left to the thread that reads the link."""
        with contextlib.suppress(LinkClosedError, LinkFullError):
            self.worker.link.send(message.SerializeToString())

    def leave(self, patience_s: float) -> None:
        """Kills the worker, because another has exited, unless it exits by itself within this time."""
        if not self.worker.wait(patience_s):
            self.was_killed = True
            self.worker.kill()

    def failed(self, failure: link_pb2.Failure) -> StopRequest:
        """Returns the stop request for a failure of the worker itself."""
        if failure.reason == Reason.MESH_NOT_READY:
            where = f" of host {self.worker.host}" if self.worker.host else ""
            return StopRequest(f"the devices{where} could not be started: {failure.message}", cause=ExitCause.CRASHED)
        return StopRequest(f"the workers got out of step: {failure.message}")


def terminate_workers(connections: Sequence[WorkerConnection]) -> list[int]:
    """Terminates workers in parallel, since unreachable hosts take time."""
    if len(connections) == 1:
        return [connections[0].worker.terminate()]
    with ThreadPoolExecutor(len(connections), thread_name_prefix="terminate") as threads:
        return list(threads.map(lambda connection: connection.worker.terminate(), connections))

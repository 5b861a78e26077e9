"""One worker of a session: what it was told, and what was heard of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from shardcall.v1 import kernel_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.frontend.workers.worker import Worker
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2

_ATTACH_BYTES = 64 << 10  # what naming memory files takes before a command


class WorkerConnection:
    """One worker of a session.

    Args:
        worker: the process.
        index: which of the session's workers it is.

    Attributes:
        was_killed: whether it was ended because another had.
        told: what its last sign of life said.
    """

    def __init__(self, worker: Worker, index: int) -> None:
        self.worker = worker
        self.index = index
        self.was_killed = False
        self.heartbeat = link_pb2.Heartbeat()
        self._messages = 0
        self._attached: set[int] = set()

    @property
    def heard(self) -> int:
        """How much was heard of it: its messages, and the parts of arrays that come or go beside them."""
        data_link = self.worker.data_link
        return self._messages + (data_link.moved if data_link is not None else 0)

    @property
    def unheard(self) -> bool:
        """Whether it has said something that was not read yet."""
        return self.worker.link.readable

    def messages(self) -> Iterator[link_pb2.WorkerMessage]:
        """Yields what it says, until it is gone."""
        for body, _ in self.worker.link.frames():
            message = link_pb2.WorkerMessage.FromString(body)
            self._messages += 1
            yield message

    def check_capacity(self, nbytes: int) -> None:
        """Raises CallError if it has not read its link for so long that no message of this size is kept for it."""
        if not self.worker.link.has_capacity(nbytes + _ATTACH_BYTES):
            raise CallError(Reason.SERVER_BUSY, "the mesh does not take commands at present; repeat the call later")

    def send(
        self,
        message: link_pb2.FrontEndMessage,
        body: bytes,
        memory: Sequence[MemoryFile],
        plan: kernel_pb2.Plan | None,
        table: BlockTable | None,
    ) -> None:
        """Sends a command.

        Args:
            message: the command.
            body: the same, serialized.
            memory: the files that it names; the worker maps those that it has not yet.
            plan: how its arrays lie on the mesh.
            table: tells which blocks are whose.

        Raises:
            LinkClosedError: it is gone.
            LinkFullError: it does not read; the message was not sent.
        """
        data_link = self.worker.data_link
        if data_link is not None and plan is not None and table is not None:
            data_link.send_with_data(message, plan, table, memory)
            return
        for file in memory if data_link is None else ():
            self._attach(file)
        self.worker.link.send(body)

    def _attach(self, file: MemoryFile) -> None:
        if file.memory_id not in self._attached:
            attach = link_pb2.AttachMemory(memory_id=file.memory_id, size_bytes=file.nbytes)
            self.worker.link.send(link_pb2.FrontEndMessage(attach_memory=attach).SerializeToString(), file.fd)
            self._attached.add(file.memory_id)

    def detach(self, memory_id: int) -> None:
        """Makes it let go of a memory file."""
        if memory_id in self._attached:
            self._attached.remove(memory_id)
            self.notify(link_pb2.FrontEndMessage(detach_memory=link_pb2.DetachMemory(memory_id=memory_id)))

    def notify(self, message: link_pb2.FrontEndMessage) -> None:
        """Sends what is for it alone; if it is gone or does not read, others will see."""
        with contextlib.suppress(LinkClosedError, LinkFullError):
            self.worker.link.send(message.SerializeToString())

    def leave(self, patience_s: float) -> None:
        """Ends it because another has ended; waits a moment for one that ends by itself."""
        if not self.worker.wait(patience_s):
            self.was_killed = True
            self.worker.kill()

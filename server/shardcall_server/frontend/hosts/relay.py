"""Link to a worker on another host through its agent's call, with arrays beside the messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardcall.v1 import kernel_pb2
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.locks import lock
from shardcall_core.wire.chunk_codec import encode_chunk
from shardcall_server.frontend.hosts.command_arrays import operands_of, results_of
from shardcall_server.frontend.hosts.pieces import Scatter, as_bytes, pieces
from shardcall_server.frontend.memory.arena import MemoryFile, aligned
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.link.framing import Frame, LinkClosedError, LinkFullError
from shardcall_server.link.process_blocks import Piece, laid_out_bytes
from shardcall_worker.v1 import host_service_pb2, link_pb2

_MAX_WAITING_BYTES = 64 << 20
_CARRIER: Any = host_service_pb2.JoinResponse
_NO_ANSWERS = {"gathered", "compiling"}  # progress messages before the answer

Outgoing = Iterator[bytes]
"""Messages for an agent, serialized as they are sent."""


class RelayedLink:
    """A link to one worker of an agent.

    Args:
        start_id: identifies this worker among those of the agent.
        index: the index of its process in the mesh.
        enqueue: appends to the messages for the agent.
    """

    def __init__(self, start_id: int, index: int, enqueue: Callable[[Outgoing], None]) -> None:
        self._start_id = start_id
        self._index = index
        self._enqueue = enqueue
        self._incoming: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = threading.Event()  # set by `close`, under `_lock`
        # Guards the results that are expected. Results are copied under it, so that `close` waits for the copy.
        self._lock = lock("the lock of a relayed link")
        self._results: dict[int, Scatter] = {}
        self._waiting_bytes = 0
        self._waiting_lock = lock("the lock of a relayed link's backlog")  # guards `_waiting_bytes`
        self.moved = 0
        """Number of chunks of operands and results sent and received."""
        self._moved_for: dict[int, int] = {}
        self._arrived = 0, 0
        self.sent_bytes = 0
        """Bytes of commands and operands sent to the host."""
        self.received_bytes = 0
        """Bytes of answers and results received from the host."""

    @property
    def readable(self) -> bool:
        """True if a message has come that `frames` has not read yet."""
        return not self._incoming.empty()

    def has_capacity(self, nbytes: int) -> bool:
        """Returns whether the backlog of an agent that does not read has this many bytes left."""
        return self._waiting_bytes + nbytes <= _MAX_WAITING_BYTES

    def send(self, body: bytes, fd: int | None = None, *, more: bool = False) -> None:
        """Sends one message at once; the descriptor is not sent.

        Raises:
            LinkClosedError: the host is gone.
            LinkFullError: the agent does not read.
        """
        command = host_service_pb2.HostCommand(start_id=self._start_id, front_end_message=body)
        self._send(host_service_pb2.JoinResponse(command=command), iter(()))

    def open_file(self, file: OpenFile) -> None:
        """Has the agent open a file on disk for the worker; see `DataLink`."""
        reference = host_service_pb2.OpenFile(
            start_id=self._start_id,
            memory_id=file.memory_id,
            path=file.path,
            inode=file.inode,
            is_folder=file.is_folder,
            is_written=file.is_written,
            marker=file.marker,
        )
        self._send(host_service_pb2.JoinResponse(open_file=reference), iter(()))

    def send_with_data(
        self,
        message: link_pb2.FrontEndMessage,
        plan: kernel_pb2.Plan,
        table: BlockTable,
        memory: Sequence[MemoryFile],
    ) -> None:
        """Sends a command with the blocks of its operands that this worker's devices hold; see `DataLink`."""
        files = {file.memory_id: file for file in memory}
        relayed = link_pb2.FrontEndMessage()
        relayed.CopyFrom(message)
        layout = _Layout(plan, table, self._index, files)
        operands = layout.operands(relayed)
        operand_bytes = layout.nbytes
        layout.align()
        begin = layout.nbytes
        results = layout.results(relayed)
        if results:
            with self._lock:
                self._results[message.call_id] = Scatter(results)
        command = host_service_pb2.HostCommand(
            start_id=self._start_id,
            front_end_message=relayed.SerializeToString(),
            operand_bytes=operand_bytes,
            result_begin=begin,
            result_bytes=layout.nbytes - begin,
        )
        self._send(host_service_pb2.JoinResponse(command=command), self._chunks(message.call_id, operands))

    def _send(self, message: host_service_pb2.JoinResponse, chunks: Outgoing) -> None:
        body = message.SerializeToString()
        if self._closed.is_set():
            raise LinkClosedError("the host is gone")
        if not self.has_capacity(len(body)):
            raise LinkFullError("the host does not read")
        self._count_waiting(len(body))
        self._enqueue(self._outgoing(body, chunks))

    def _count_waiting(self, nbytes: int) -> None:
        with self._waiting_lock:
            self._waiting_bytes += nbytes

    def _outgoing(self, body: bytes, chunks: Outgoing) -> Outgoing:
        self._count_waiting(-len(body))
        if not self._closed.is_set():
            self.sent_bytes += len(body)
            yield body
            yield from chunks

    def moved_for(self, call_id: int) -> int:
        """Returns the progress of the arrays of a pending command, a number that grows."""
        arrived = self._arrived[1] if self._arrived[0] == call_id else 0
        return self._moved_for.get(call_id, 0) + arrived

    def set_arrived(self, call_id: int, nbytes: int) -> None:
        """Records the number of bytes of a command's operands that the agent has received."""
        self._arrived = call_id, nbytes

    def _count_moved(self, call_id: int) -> None:
        self.moved += 1
        self._moved_for[call_id] = self._moved_for.get(call_id, 0) + 1

    def _chunks(self, call_id: int, operands: Sequence[tuple[int, np.ndarray]]) -> Outgoing:
        for begin, array in operands:
            offset = begin
            for piece in pieces(array):
                if self._closed.is_set():  # the memory may belong to another call by now
                    return
                data = as_bytes(piece)
                chunk = encode_chunk(_CARRIER, 0, offset, data)
                self.sent_bytes += len(chunk)
                self._count_moved(call_id)
                yield chunk
                offset += data.size

    def take_message(self, body: bytes) -> None:
        """Handles a message of the worker; the results of an answer have come before it.

        Raises:
            ValueError: they have not, so their buffers hold data of another call.
        """
        message = link_pb2.WorkerMessage.FromString(body)
        answer = message.WhichOneof("answer")
        with self._lock:
            if self._closed.is_set():  # no thread reads it
                return
            scatter = None if answer in _NO_ANSWERS else self._results.pop(message.call_id, None)
        if answer not in _NO_ANSWERS:
            self._moved_for.pop(message.call_id, None)
        if scatter is not None and answer != "failure" and not scatter.is_complete:
            raise ValueError("an answer came before its results")
        self.received_bytes += len(body)
        self._incoming.put(body)

    def take_chunk(self, call_id: int, data: np.ndarray) -> None:
        """Writes the next bytes of a command's results."""
        with self._lock:  # `close` waits for a copy in progress: afterwards the memory belongs to another call
            scatter = None if self._closed.is_set() else self._results.get(call_id)
            if scatter is not None:
                scatter.write(data)
                self.received_bytes += data.size
                self._count_moved(call_id)

    def flush(self) -> None:
        """Does nothing: messages are sent at once."""

    def batches(self) -> Iterator[list[Frame]]:
        """Yields messages as they come, each alone, until the link is closed."""
        while (body := self._incoming.get()) is not None:
            yield [(body, None)]

    def close(self) -> None:
        """Closes the link: from here on, no command's memory is read or written."""
        with self._lock:
            self._closed.set()
            self._results.clear()
        self._incoming.put(None)


class _Layout:
    """Layout of a command's arrays in its worker's memory, operands first.

    Args:
        plan: the placement of the arrays on the mesh.
        table: the blocks of each process.
        process: the index of the worker's process.
        memory: the memory files that the command names, by id.

    Attributes:
        nbytes: the bytes laid out so far.
    """

    def __init__(self, plan: kernel_pb2.Plan, table: BlockTable, process: int, memory: dict[int, MemoryFile]) -> None:
        self._plan = plan
        self._table = table
        self._process = process
        self._memory = memory
        self.nbytes = 0

    def align(self) -> None:
        """Aligns the next array so that JAX can alias it."""
        self.nbytes = aligned(self.nbytes)

    def operands(self, message: link_pb2.FrontEndMessage) -> list[tuple[int, np.ndarray]]:
        """Sets the operands' spans in a command; returns their pieces, each with its offset."""
        arrays: list[tuple[int, np.ndarray]] = []
        for data, placement in zip(operands_of(message), self._plan.operands, strict=False):
            if data.HasField("span"):
                array_type, held = self._table.held(placement, self._plan.mesh, self._process)
                arrays += self._add(data.blocks, self._array(data.span, array_type), held)
        return arrays

    def results(self, message: link_pb2.FrontEndMessage) -> list[tuple[int, np.ndarray]]:
        """Sets the results' spans in a command; returns their pieces here, each with the gap before it."""
        arrays: list[tuple[int, np.ndarray]] = []
        begin = self.nbytes
        for destination, placement in zip(results_of(message), self._plan.results, strict=False):
            if destination.HasField("span"):
                array_type, gathered = self._table.gathered(placement, self._plan.mesh, self._process)
                arrays += self._add(destination.blocks, self._array(destination.span, array_type), gathered)
        gaps, end = [], begin
        for offset, piece in arrays:
            gaps.append((offset - end, piece))
            end = offset + piece.nbytes
        return gaps

    def _array(self, span: link_pb2.MemorySpan, array_type: ArrayType) -> np.ndarray:
        memory = self._memory[span.memory_id].view(span.offset, array_type.nbytes)
        array: np.ndarray = np.ndarray(array_type.shape, array_type.dtype, buffer=memory)
        return array

    def _add(
        self, span: link_pb2.MemorySpan, array: np.ndarray, pieces: Sequence[Piece]
    ) -> Iterator[tuple[int, np.ndarray]]:
        if pieces:  # an empty array must not add padding behind the last operand byte
            self.align()
        begin = self.nbytes
        span.memory_id, span.offset = 0, begin
        span.SetInParent()
        self.nbytes += laid_out_bytes(pieces)
        return iter([(begin + piece.offset, piece.of(array)) for piece in pieces])

"""The way to a worker on another host: through its agent's call, arrays beside the messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardcall._src.wire.chunk_codec import encode_chunk
from shardcall.v1 import kernel_pb2
from shardcall_server.frontend.hosts.command_arrays import operands_of, results_of
from shardcall_server.frontend.hosts.pieces import Scatter, as_bytes, pieces
from shardcall_server.frontend.memory.arena import MemoryFile, aligned
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_server.link.process_blocks import Piece, laid_out_bytes
from shardcall_worker.v1 import host_service_pb2, link_pb2

_MAX_WAITING_BYTES = 64 << 20
_CARRIER: Any = host_service_pb2.JoinResponse
_NO_ANSWERS = {"gathered", "compiling"}  # these come before the answer

Outgoing = Iterator[bytes]
"""Messages for an agent, made as they are sent."""


class RelayedLink:
    """The way to one worker of an agent's.

    Args:
        start_id: tells this worker from others of the agent.
        index: of its process in the mesh.
        enqueue: takes what is to be sent to the agent, in order.
    """

    def __init__(self, start_id: int, index: int, enqueue: Callable[[Outgoing], None]) -> None:
        self._start_id = start_id
        self._index = index
        self._enqueue = enqueue
        self._incoming: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._results: dict[int, Scatter] = {}
        self._waiting_bytes = 0
        self._waiting_lock = threading.Lock()
        self.moved = 0
        """How many parts of operands and results went either way."""
        self._moved_for: dict[int, int] = {}
        self._arrived = 0, 0
        self.sent_bytes = 0
        """The bytes of commands and operands that went to the host."""
        self.received_bytes = 0
        """The bytes of answers and results that came from it."""

    @property
    def readable(self) -> bool:
        """Whether something has come that `frames` has not read yet."""
        return not self._incoming.empty()

    def has_capacity(self, nbytes: int) -> bool:
        """Whether so much more is kept for an agent that does not read."""
        return self._waiting_bytes + nbytes <= _MAX_WAITING_BYTES

    def send(self, body: bytes, fd: int | None = None) -> None:
        """Sends one message; a descriptor stays here.

        Raises:
            LinkClosedError: the host is gone.
            LinkFullError: it does not read.
        """
        command = host_service_pb2.HostCommand(start_id=self._start_id, front_end_message=body)
        self._send(host_service_pb2.JoinResponse(command=command), iter(()))

    def send_with_data(
        self,
        message: link_pb2.FrontEndMessage,
        plan: kernel_pb2.Plan,
        table: BlockTable,
        memory: Sequence[MemoryFile],
    ) -> None:
        """Sends a command, and of its operands what this worker's devices hold; see `DataLink`."""
        places = {file.memory_id: file for file in memory}
        relayed = link_pb2.FrontEndMessage()
        relayed.CopyFrom(message)
        layout = _Layout(plan, table, self._index, places)
        operands = layout.operands(relayed)
        operand_bytes = layout.end
        layout.align()
        begin = layout.end
        results = layout.results(relayed)
        if results:
            with self._lock:
                self._results[message.call_id] = Scatter(results)
        command = host_service_pb2.HostCommand(
            start_id=self._start_id,
            front_end_message=relayed.SerializeToString(),
            operand_bytes=operand_bytes,
            result_begin=begin,
            result_bytes=layout.end - begin,
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
        """How far the arrays of a command have come that has not been answered: a number that grows."""
        arrived = self._arrived[1] if self._arrived[0] == call_id else 0
        return self._moved_for.get(call_id, 0) + arrived

    def set_arrived(self, call_id: int, nbytes: int) -> None:
        """Tells how many bytes of a command's operands the agent has: what was sent may be on its way for long."""
        self._arrived = call_id, nbytes

    def _count_moved(self, call_id: int) -> None:
        self.moved += 1
        self._moved_for[call_id] = self._moved_for.get(call_id, 0) + 1

    def _chunks(self, call_id: int, operands: Sequence[tuple[int, np.ndarray]]) -> Outgoing:
        for begin, array in operands:
            offset = begin
            for piece in pieces(array):
                if self._closed.is_set():  # the memory may be another call's by now
                    return
                data = as_bytes(piece)
                chunk = encode_chunk(_CARRIER, 0, offset, data)
                self.sent_bytes += len(chunk)
                self._count_moved(call_id)
                yield chunk
                offset += data.size

    def take_message(self, body: bytes) -> None:
        """Takes a message of the worker's; the results that belong to an answer have come before it.

        Raises:
            ValueError: they have not: what lies in their places is another call's.
        """
        message = link_pb2.WorkerMessage.FromString(body)
        answer = message.WhichOneof("answer")
        with self._lock:
            if self._closed.is_set():  # nobody reads it
                return
            scatter = None if answer in _NO_ANSWERS else self._results.pop(message.call_id, None)
        if answer not in _NO_ANSWERS:
            self._moved_for.pop(message.call_id, None)
        if scatter is not None and answer != "failure" and not scatter.is_complete:
            raise ValueError("an answer came before its results")
        self.received_bytes += len(body)
        self._incoming.put(body)

    def take_chunk(self, call_id: int, data: np.ndarray) -> None:
        """Takes the next bytes of a command's results."""
        with self._lock:  # `close` waits for a copy under way: afterwards the memory is another's
            scatter = None if self._closed.is_set() else self._results.get(call_id)
            if scatter is not None:
                scatter.write(data)
                self.received_bytes += data.size
                self._count_moved(call_id)

    def frames(self) -> Iterator[tuple[bytes, int | None]]:
        """Yields messages as they come, and ends when the link is closed."""
        while (body := self._incoming.get()) is not None:
            yield body, None

    def close(self) -> None:
        """Ends it: nothing is read from or written to a command's memory from here on."""
        with self._lock:
            self._closed.set()
            self._results.clear()
        self._incoming.put(None)


class _Layout:
    """Lays the arrays of a command out in its worker's memory, operands first.

    Args:
        plan: how they lie on the mesh.
        table: tells which blocks are whose.
        process: the worker's.
        memory: the files that the command names here.

    Attributes:
        end: the bytes laid out so far.
    """

    def __init__(self, plan: kernel_pb2.Plan, table: BlockTable, process: int, memory: dict[int, MemoryFile]) -> None:
        self._plan = plan
        self._table = table
        self._process = process
        self._memory = memory
        self.end = 0

    def align(self) -> None:
        """Has the next array begin where JAX can alias it."""
        self.end = aligned(self.end)

    def operands(self, message: link_pb2.FrontEndMessage) -> list[tuple[int, np.ndarray]]:
        """Names the operands' places in a command; returns their pieces, and where each begins."""
        found: list[tuple[int, np.ndarray]] = []
        for data, placement in zip(operands_of(message), self._plan.operands, strict=False):
            if data.HasField("span"):
                kind, held = self._table.held(placement, self._plan.mesh, self._process)
                whole = self._whole(data.span, kind)
                found += self._take(data.blocks, whole, held)
        return found

    def results(self, message: link_pb2.FrontEndMessage) -> list[tuple[int, np.ndarray]]:
        """Names the results' places in a command; returns their pieces here, each with the gap before it."""
        found: list[tuple[int, np.ndarray]] = []
        begin = self.end
        for place, placement in zip(results_of(message), self._plan.results, strict=False):
            if place.HasField("span"):
                kind, given = self._table.gathered(placement, self._plan.mesh, self._process)
                whole = self._whole(place.span, kind)
                found += self._take(place.blocks, whole, given)
        gaps, end = [], begin
        for offset, piece in found:
            gaps.append((offset - end, piece))
            end = offset + piece.nbytes
        return gaps

    def _whole(self, span: link_pb2.MemorySpan, kind: ArrayType) -> np.ndarray:
        memory = self._memory[span.memory_id].view(span.offset, kind.nbytes)
        whole: np.ndarray = np.ndarray(kind.shape, kind.dtype, buffer=memory)
        return whole

    def _take(
        self, span: link_pb2.MemorySpan, whole: np.ndarray, held: Sequence[Piece]
    ) -> Iterator[tuple[int, np.ndarray]]:
        if held:  # else the bytes of operands would seem to end behind the last that comes
            self.align()
        begin = self.end
        span.memory_id, span.offset = 0, begin
        span.SetInParent()
        self.end += laid_out_bytes(held)
        return iter([(begin + piece.offset, piece.of(whole)) for piece in held])

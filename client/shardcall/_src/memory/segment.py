"""Segments: memory that this client shares with a server on the same host."""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import grpc
import numpy as np

from shardcall._src.memory.free_list import FreeList
from shardcall._src.rpc.deadline import Deadline
from shardcall.v1 import kernel_service_pb2, segment_service_pb2
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import ShardcallError
from shardcall_core.wire.chunk_codec import Bytes

if TYPE_CHECKING:
    from shardcall._src.rpc.transport import Transport

ALIGNMENT = 64
"""The alignment of arrays in a segment that the protocol requires, in bytes."""

_HUGE_PAGE_BYTES = 2 * 2**20
_HERE_IT_IS = b"\x01"
_FOR_GOOD = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


class CannotShareError(Exception):
    """Raised if client and server can never share memory."""


def aligned_size(nbytes: int) -> int:
    """Returns the bytes of a segment that a block of this size uses."""
    step = _HUGE_PAGE_BYTES if nbytes >= _HUGE_PAGE_BYTES else ALIGNMENT
    return -(-nbytes // step) * step


class FreedParts:
    """The parts of a segment that are free again, each with its offset and its size."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[int, int]] = SimpleQueue()
        self._references: dict[tuple[int, int], weakref.ref[Block]] = {}

    def add_after(self, block: Block, part: tuple[int, int]) -> None:
        """Adds a part when its block is dropped, unless it is added before."""
        # No Python code runs then, which may be anywhere: the exception of a signal handler in it would be ignored, and
        # it must wait for no lock. The argument that follows, the reference, means nothing to a queue without a limit.
        self._references[part] = weakref.ref(block, partial(self._queue.put, part))

    def add(self, part: tuple[int, int]) -> None:
        """Adds a part whose block may still be there."""
        if self._references.pop(part, None) is not None:
            self._queue.put(part)

    def forget(self, part: tuple[int, int]) -> None:
        """Does not add a part when its block is dropped."""
        self._references.pop(part, None)

    def take(self) -> tuple[int, int] | None:
        """Removes a part and returns it; None if there is none."""
        try:
            part = self._queue.get_nowait()
        except Empty:
            return None
        self._references.pop(part, None)
        return part


class Block:
    """A part of a segment; it is freed when neither the block nor an array in it is left.

    Attributes:
        segment_id: the id of the segment.
        offset: the offset in the segment, in bytes.
        nbytes: the size.
    """

    def __init__(self, segment_id: bytes, memory: Bytes, freed: FreedParts, offset: int, end: int) -> None:
        self.segment_id = segment_id
        self._memory = memory  # keeps the memory mapped
        self._freed = freed
        self._occupy(offset, end)

    @property
    def __array_interface__(self) -> dict[str, object]:
        address = self._memory.ctypes.data + self.offset
        return {"version": 3, "data": (address, False), "shape": (self.nbytes,), "typestr": "|u1"}

    def array(self, array_type: Array) -> NDArray:
        """Returns an uninitialized array over the block's first bytes; it keeps the block allocated."""
        return np.asarray(self)[: array_type.nbytes].view(array_type.dtype).reshape(array_type.shape)

    def region(self) -> kernel_service_pb2.SegmentRegion:
        """Returns the region of an array at the start of the block as a message."""
        return kernel_service_pb2.SegmentRegion(segment_id=self.segment_id, offset=self.offset)

    def carve(self, offset: int, nbytes: int) -> Block:
        """Splits off a part as a block; the bytes before it are freed, those after it remain in this block.

        Args:
            offset: the offset of the part in the segment, a multiple of `ALIGNMENT`.
            nbytes: the size of the part, more than 0.
        """
        end, last = -(-(offset + nbytes) // ALIGNMENT) * ALIGNMENT, self.offset + self.nbytes
        self._freed.forget((self.offset, self.nbytes))
        before = Block(self.segment_id, self._memory, self._freed, self.offset, offset)
        self._occupy(end, last)
        before.release()
        return Block(self.segment_id, self._memory, self._freed, offset, end)

    def release(self) -> None:
        """Frees the block now; no array may use it any more."""
        self._freed.add((self.offset, self.nbytes))

    def _occupy(self, offset: int, end: int) -> None:
        self.offset: int = offset
        self.nbytes: int = end - offset
        if self.nbytes:
            self._freed.add_after(self, (offset, self.nbytes))


class Segment:
    """Memory that a server shares with this client until a connection to one of its sockets is closed.

    Only `Segments` may call its methods, which are not safe to be called from several threads at once.

    Args:
        segment_id: the server's id of it.
        memory: the mapping, which stays as long as an array uses it.
        lease: the descriptor of the connection.
    """

    def __init__(self, segment_id: bytes, memory: Bytes, lease: int) -> None:
        self.segment_id = segment_id
        self.nbytes = memory.size
        self._memory = memory
        self._address = memory.ctypes.data
        self._free = FreeList(memory.size)
        self._freed = FreedParts()
        self._close = weakref.finalize(self, os.close, lease)
        self._close.atexit = False

    @property
    def is_empty(self) -> bool:
        """True if no block is allocated."""
        return self._free.is_unused

    def collect(self) -> bool:
        """Frees the blocks that were released; returns True if there were any."""
        any_freed = False
        while (part := self._freed.take()) is not None:
            self._free.free(*part)
            any_freed = True
        return any_freed

    def allocate(self, nbytes: int) -> Block | None:
        """Returns a block of at least this size, more than 0; None if no free range is large enough."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        offset = self._free.allocate(size, _HUGE_PAGE_BYTES) if size >= _HUGE_PAGE_BYTES else None
        if offset is None:
            offset = self._free.allocate(size, ALIGNMENT)
        return None if offset is None else Block(self.segment_id, self._memory, self._freed, offset, offset + size)

    def offset_of(self, array: NDArray) -> int | None:
        """Returns the offset of an array in the segment; None if it is elsewhere, not contiguous or not aligned."""
        offset = int(array.ctypes.data) - self._address
        inside = offset >= 0 and offset + array.nbytes <= self.nbytes
        return offset if inside and array.flags.c_contiguous and offset % ALIGNMENT == 0 else None

    def close(self) -> None:
        """Returns the segment to the server; arrays in it stay valid. May be called again."""
        self._close()


def open_segment(transport: Transport, nbytes: int, deadline: Deadline) -> Segment:
    """Asks the server for a segment and maps it.

    Args:
        transport: the connection to the server.
        deadline: the deadline of the call that needs it.

    Raises:
        CannotShareError: if client and server can never share memory.
        ShardcallError: if the server refuses a segment now.
        OSError: if the segment cannot be received or mapped.
    """
    from shardcall_core.wire.shared_memory import map_file  # noqa: PLC0415 - Linux only

    request = segment_service_pb2.OpenSegmentRequest(size_bytes=nbytes)
    try:
        opened = transport.unary(transport.stubs.segments.OpenSegment, request, deadline)
    except ShardcallError as error:
        if error.status in _FOR_GOOD:
            raise CannotShareError from error
        raise
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(_connect(opened, deadline))
        file = _receive(connection, opened.ticket)
        stack.callback(os.close, file)
        if os.fstat(file).st_size < opened.size_bytes:  # access beyond the end would kill this process
            raise CannotShareError
        memory = map_file(file, opened.size_bytes, populate=True)
        return Segment(opened.segment_id, memory, connection.detach())


def _connect(opened: segment_service_pb2.OpenSegmentResponse, deadline: Deadline) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(max(min(opened.ticket_seconds, deadline.remaining_s()), 1e-3))
        connection.connect(opened.socket_path)
    except TimeoutError:
        connection.close()
        raise
    except OSError as error:  # such as a server in another container, or of another user
        connection.close()
        raise CannotShareError from error
    except BaseException:
        connection.close()
        raise
    return connection


def _receive(connection: socket.socket, ticket: bytes) -> int:
    """Sends the ticket and returns the descriptor received for it."""
    try:
        connection.sendall(ticket)
        answer, files, _, _ = socket.recv_fds(connection, len(_HERE_IT_IS), 1, socket.MSG_CMSG_CLOEXEC)
    except TimeoutError:
        raise
    except OSError as error:
        raise CannotShareError from error
    if answer != _HERE_IT_IS or len(files) != 1:
        for file in files:
            os.close(file)
        raise CannotShareError
    return files[0]

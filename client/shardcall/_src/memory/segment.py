"""A piece of memory that this client shares with a server on the same host."""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from collections import deque
from typing import TYPE_CHECKING

import grpc
import numpy as np

from shardcall._src.memory.free_list import FreeList
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.types.arrays import Array, NDArray
from shardcall._src.types.errors import ShardcallError
from shardcall._src.wire.chunk_codec import Bytes
from shardcall.v1 import kernel_service_pb2, segment_service_pb2

if TYPE_CHECKING:
    from shardcall._src.rpc.transport import Transport

ALIGNMENT = 64
"""What the contract asks of an array's beginning in a segment, in bytes."""

_HUGE_PAGE_BYTES = 2 * 2**20
_HERE_IT_IS = b"\x01"
_FOR_GOOD = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


class CannotShareError(Exception):
    """Client and server cannot share memory, and asking again would not help."""


def aligned_size(nbytes: int) -> int:
    """Returns what a block of this size takes of a segment."""
    step = _HUGE_PAGE_BYTES if nbytes >= _HUGE_PAGE_BYTES else ALIGNMENT
    return -(-nbytes // step) * step


class Block:
    """A part of a segment; free again when neither it nor an array in it is left.

    Attributes:
        segment_id: of the segment.
        offset: where it begins there, in bytes.
        nbytes: its size.
    """

    def __init__(self, segment_id: bytes, memory: Bytes, freed: deque[tuple[int, int]], offset: int, end: int) -> None:
        self.segment_id = segment_id
        self._memory = memory  # keeps the mapping
        self._freed = freed
        self._own(offset, end)

    @property
    def __array_interface__(self) -> dict[str, object]:
        address = self._memory.ctypes.data + self.offset
        return {"version": 3, "data": (address, False), "shape": (self.nbytes,), "typestr": "|u1"}

    def array(self, kind: Array) -> NDArray:
        """Returns an array over the block's first bytes, uninitialized; it keeps the block."""
        return np.asarray(self)[: kind.nbytes].view(kind.dtype).reshape(kind.shape)

    def region(self) -> kernel_service_pb2.SegmentRegion:
        """Where an array that begins with the block lies, as the wire holds it."""
        return kernel_service_pb2.SegmentRegion(segment_id=self.segment_id, offset=self.offset)

    def carve(self, offset: int, nbytes: int) -> Block:
        """Makes a part of this block one of its own; what is before it becomes free, what is after it stays.

        Args:
            offset: where the part begins in the segment, a multiple of `ALIGNMENT`.
            nbytes: its size, more than 0.
        """
        end, last = -(-(offset + nbytes) // ALIGNMENT) * ALIGNMENT, self.offset + self.nbytes
        self._release.detach()
        if offset > self.offset:
            self._freed.append((self.offset, offset - self.offset))
        self._own(end, last)
        return Block(self.segment_id, self._memory, self._freed, offset, end)

    def release(self) -> None:
        """Frees it now; no array may lie in it any more."""
        self._release()

    def _own(self, offset: int, end: int) -> None:
        self.offset, self.nbytes = offset, end - offset
        # It runs in any thread at any time, even within the allocator: an append is all it may do.
        self._release = weakref.finalize(self, self._freed.append, (self.offset, self.nbytes))
        self._release.atexit = False


class Segment:
    """Memory that a server shares with this client for as long as a connection to a socket of its lasts.

    Only `Segments` may call its methods, which are not safe to be called from several threads at once.

    Args:
        segment_id: as the server named it.
        memory: its mapping, which stays as long as any array lies in it.
        lease: the connection's descriptor.
    """

    def __init__(self, segment_id: bytes, memory: Bytes, lease: int) -> None:
        self.segment_id = segment_id
        self.nbytes = memory.size
        self._memory = memory
        self._address = memory.ctypes.data
        self._free = FreeList(memory.size)
        self._freed: deque[tuple[int, int]] = deque()
        self._close = weakref.finalize(self, os.close, lease)
        self._close.atexit = False

    @property
    def is_empty(self) -> bool:
        """Whether no block is taken."""
        return self._free.is_unused

    def collect(self) -> bool:
        """Takes back the blocks that were let go; returns whether there were any."""
        any_freed = False
        with contextlib.suppress(IndexError):
            while True:
                offset, nbytes = self._freed.popleft()
                if nbytes:
                    self._free.free(offset, nbytes)
                    any_freed = True
        return any_freed

    def allocate(self, nbytes: int) -> Block | None:
        """Returns a block of at least this size, more than 0; None if there is no room."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        offset = self._free.allocate(size, _HUGE_PAGE_BYTES) if size >= _HUGE_PAGE_BYTES else None
        if offset is None:
            offset = self._free.allocate(size, ALIGNMENT)
        return None if offset is None else Block(self.segment_id, self._memory, self._freed, offset, offset + size)

    def offset_of(self, array: NDArray) -> int | None:
        """Returns where an array begins in the segment; None if it lies elsewhere or cannot be named."""
        offset = int(array.ctypes.data) - self._address
        inside = offset >= 0 and offset + array.nbytes <= self.nbytes
        return offset if inside and array.flags.c_contiguous and offset % ALIGNMENT == 0 else None

    def close(self) -> None:
        """Gives it back to the server; arrays that lie in it stay as they are. May be repeated."""
        self._close()


def open_segment(transport: Transport, nbytes: int, deadline: Deadline) -> Segment:
    """Asks the server for a segment and maps it.

    Args:
        transport: to the server.
        nbytes: its size.
        deadline: of the call that needs it.

    Raises:
        CannotShareError: client and server cannot share memory.
        ShardcallError: the server gives none now.
        OSError: likewise, or it cannot be mapped.
    """
    from shardcall._src.wire.shared_memory import map_file  # noqa: PLC0415 - Linux only

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
        if os.fstat(file).st_size < opened.size_bytes:  # touching what is not there would kill this process
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
    except OSError as error:  # such as: in another container, of another user
        connection.close()
        raise CannotShareError from error
    except BaseException:
        connection.close()
        raise
    return connection


def _receive(connection: socket.socket, ticket: bytes) -> int:
    """Shows the ticket; returns the descriptor that comes for it."""
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

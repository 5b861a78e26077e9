"""Buffers for the operands and results of one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np

from shardcall.v1 import kernel_service_pb2
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.memory.arena import Arena, MemoryFile, Region, aligned
from shardcall_server.frontend.memory.open_file import OpenFile
from shardcall_server.frontend.memory.resident_array_table import ResidentArray
from shardcall_server.frontend.memory.segments import SegmentTable, ServerSegment
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_worker.v1 import link_pb2

INLINE_LINK_BYTES = 64 << 10
"""Operands or results of at most this many bytes in total are sent in the link's own messages."""


class FileOperand(NamedTuple):
    """An array in a file on disk, or in the directory of a Zarr array, from which the worker reads it.

    Attributes:
        file: the file, or the directory.
        offset: the offset of its first element, in bytes.
        is_column_major: True if the first index varies fastest.
        is_big_endian: True if the first byte of a number is its most significant one.
        zarr_metadata: the metadata of a Zarr array, as JSON; empty for a file.
    """

    file: OpenFile
    offset: int = 0
    is_column_major: bool = False
    is_big_endian: bool = False
    zarr_metadata: str = ""


class OperandSource(NamedTuple):
    """The source of an operand, as its sender specified it.

    Attributes:
        type: the array's type; None for an omitted operand.
        segment: its location in the sender's segment, if it is there.
        resident: the resident array, if it is one.
        file: its location in a file on disk, if it is there.
    """

    type: ArrayType | None
    segment: kernel_service_pb2.SegmentRegion | None = None
    resident: ResidentArray | None = None
    file: FileOperand | None = None


class CallBytes(NamedTuple):
    """The bytes of a call's arrays.

    Attributes:
        operands: those of operands that arrive in messages.
        shared: those of operands in the caller's segment.
        results: those of all results.
    """

    operands: int
    shared: int
    results: int = 0


def count_bytes(operands: Iterable[OperandSource], results: Iterable[ArrayType] = ()) -> CallBytes:
    """Returns the bytes of a call's arrays."""
    in_messages = shared = 0
    for operand in operands:
        if operand.type is None or operand.resident is not None or operand.file is not None:
            continue
        if operand.segment is None:
            in_messages += operand.type.nbytes
        else:
            shared += operand.type.nbytes
    return CallBytes(in_messages, shared, sum(result.nbytes for result in results))


class _CountedMemory(MemoryFile, Protocol):
    """Memory with a count of its users."""

    def acquire(self) -> None: ...
    def release(self) -> None: ...


class CallBuffers:
    """The buffers of a call's arrays.

    Attributes:
        region: the call's own memory; None if it needs none.
        region_bytes: the size of the used part of the region.
        operands: the location of each operand; those sent through the link are empty until they arrive.
        results: the destination of each result.
        segment_id: the segment that receives the results; empty if none does.
        memory: all memory that the worker must map.
    """

    __slots__ = ("memory", "operands", "region", "region_bytes", "results", "segment_id")

    def __init__(self) -> None:
        self.region: Region | None = None
        self.region_bytes = 0
        self.operands: list[link_pb2.TensorData] = []
        self.results: list[link_pb2.ResultDestination] = []
        self.segment_id = b""
        self.memory: list[_CountedMemory] = []

    def view(self, span: link_pb2.MemorySpan, nbytes: int) -> np.ndarray:
        """Returns a view of an array in the region."""
        assert self.region is not None
        return self.region.view(span.offset, nbytes)

    def acquire(self) -> None:
        """Adds a user of the memory, such as the worker."""
        for memory in self.memory:
            memory.acquire()

    def release(self) -> None:
        """Removes a user of the memory."""
        for memory in self.memory:
            memory.release()


class BufferAllocator:
    """Allocates the buffers of calls.

    Args:
        arena: memory for arrays that travel in messages.
        segments: memory that clients share.

    Attributes:
        calls: the number of calls whose buffers were released; updated without a lock.
    """

    def __init__(self, arena: Arena, segments: SegmentTable) -> None:
        self.calls = 0
        self._arena = arena
        self._segments = segments

    @contextmanager
    def allocated(
        self,
        call: ServerCall,
        operands: Sequence[OperandSource],
        results: Sequence[ArrayType],
        *,
        space: kernel_service_pb2.SegmentSpace | None = None,
        kept: Sequence[int] = (),
    ) -> Iterator[CallBuffers]:
        """Allocates a buffer for each array of a call during the body; as `allocate`, and counts the moved bytes."""
        nbytes = count_bytes(operands, results)
        buffers = self.allocate(call, operands, nbytes, results, space=space, kept=kept)
        try:
            yield buffers
            count_moved(call, nbytes, buffers, keeps=bool(kept))
        finally:
            self.release(buffers)

    def allocate(
        self,
        call: ServerCall,
        operands: Sequence[OperandSource],
        nbytes: CallBytes,
        results: Sequence[ArrayType],
        *,
        space: kernel_service_pb2.SegmentSpace | None = None,
        kept: Sequence[int] = (),
    ) -> CallBuffers:
        """Allocates a buffer for each array of a call, until `release` and the worker's answer.

        Args:
            call: the owner of the buffers.
            nbytes: their bytes, and those of the results.
            space: a part of the caller's segment, which receives the results if they fit.
            kept: the ids of results that stay on the mesh.
        """
        buffers = CallBuffers()
        try:
            spans: list[tuple[link_pb2.MemorySpan, int]] = []
            for i, operand in enumerate(operands):
                data = link_pb2.TensorData()
                buffers.operands.append(data)
                if operand.resident is not None:
                    data.array_id = operand.resident.array_id
                elif operand.file is not None:
                    operand.file.file.acquire()
                    buffers.memory.append(operand.file.file)
                elif operand.segment is not None and operand.type is not None:
                    begin, size = operand.segment.offset, operand.type.nbytes
                    segment = self._acquire_segment(
                        call, buffers, operand.segment.segment_id, begin, size, f"operand {i}"
                    )
                    data.span.memory_id = segment.memory_id
                    data.span.offset = begin
                elif nbytes.operands > INLINE_LINK_BYTES and operand.type is not None and operand.type.nbytes:
                    data.span.SetInParent()
                    spans.append((data.span, operand.type.nbytes))
            if kept:
                buffers.results = [link_pb2.ResultDestination(array_id=array_id) for array_id in kept]
            elif space is None or not self._assign_segment(call, buffers, results, space):
                buffers.results = [link_pb2.ResultDestination() for _ in results]
                if nbytes.results > INLINE_LINK_BYTES:
                    for destination, result in zip(buffers.results, results, strict=True):
                        destination.span.SetInParent()
                        spans.append((destination.span, result.nbytes))
            if spans:
                self._allocate_region(call, buffers, spans)
        except BaseException:
            buffers.release()
            raise
        return buffers

    def release(self, buffers: CallBuffers) -> None:
        """Releases the buffers of a call; the worker may still use them."""
        if buffers.memory:
            buffers.release()
        self.calls += 1

    def _allocate_region(
        self, call: ServerCall, buffers: CallBuffers, spans: Sequence[tuple[link_pb2.MemorySpan, int]]
    ) -> None:
        """Lays arrays out in the call's own memory."""
        for span, size in spans:
            span.offset = buffers.region_bytes
            buffers.region_bytes += aligned(size)
        buffers.region = self._arena.acquire(call.owner, buffers.region_bytes)
        buffers.memory.append(buffers.region)
        for span, _ in spans:
            span.memory_id = buffers.region.memory_id

    def _assign_segment(
        self,
        call: ServerCall,
        buffers: CallBuffers,
        results: Sequence[ArrayType],
        space: kernel_service_pb2.SegmentSpace,
    ) -> bool:
        """Assigns the results to the caller's segment if they fit there; returns whether they do."""
        if sum(aligned(result.nbytes) for result in results) > space.size_bytes:
            return False
        segment = self._acquire_segment(call, buffers, space.segment_id, space.offset, space.size_bytes, "result_space")
        offset = space.offset
        for result in results:
            span = link_pb2.MemorySpan(memory_id=segment.memory_id, offset=offset)
            buffers.results.append(link_pb2.ResultDestination(span=span))
            offset += aligned(result.nbytes)
        buffers.segment_id = space.segment_id
        return True

    def _acquire_segment(
        self, call: ServerCall, buffers: CallBuffers, segment_id: bytes, offset: int, nbytes: int, field: str
    ) -> ServerSegment:
        segment = self._segments.acquire(segment_id, offset, nbytes, field, call.principal_name)
        buffers.memory.append(segment)
        return segment


def count_moved(call: ServerCall, nbytes: CallBytes, buffers: CallBuffers, *, keeps: bool) -> None:
    """Counts the bytes of a call that has moved all its arrays.

    Args:
        nbytes: the bytes of its arrays.
        keeps: whether the results stay on the mesh.
    """
    call.received_bytes += nbytes.operands
    call.shared_bytes += nbytes.shared
    if buffers.segment_id:
        call.shared_bytes += nbytes.results
    elif not keeps:
        call.sent_bytes += nbytes.results

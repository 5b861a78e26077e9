"""Buffers for the operands and results of one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from shardcall.v1 import kernel_service_pb2
from shardcall_server.frontend.memory.arena import Arena, MemoryFile, Region, aligned
from shardcall_server.frontend.memory.resident_array_table import ResidentArray
from shardcall_server.frontend.memory.segments import SegmentTable, ServerSegment
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.kernels.layout import ArrayType
from shardcall_worker.v1 import link_pb2

INLINE_LINK_BYTES = 64 << 10
"""Operands or results of at most this many bytes in total are sent in the link's own messages."""


@dataclass(frozen=True)
class OperandSource:
    """The source of an operand, as its sender specified it.

    Attributes:
        type: the array's type; None for an omitted operand.
        segment: its location in the sender's segment, if it is there.
        resident: the resident array, if it is one.
    """

    type: ArrayType | None
    segment: kernel_service_pb2.SegmentRegion | None = None
    resident: ResidentArray | None = None

    @property
    def travelling_bytes(self) -> int:
        """The number of its bytes that arrive in messages."""
        return self.type.nbytes if self.type and self.segment is None and self.resident is None else 0


class _CountedMemory(MemoryFile, Protocol):
    """Memory with a count of its users."""

    def acquire(self) -> None: ...
    def release(self) -> None: ...


@dataclass
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

    region: Region | None = None
    region_bytes: int = 0
    operands: list[link_pb2.TensorData] = field(default_factory=list)
    results: list[link_pb2.ResultDestination] = field(default_factory=list)
    segment_id: bytes = b""
    memory: list[_CountedMemory] = field(default_factory=list)

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
    def allocate(
        self,
        call: ServerCall,
        operands: Sequence[OperandSource],
        results: Sequence[ArrayType],
        *,
        space: kernel_service_pb2.SegmentSpace | None = None,
        kept: Sequence[int] = (),
    ) -> Iterator[CallBuffers]:
        """Allocates a buffer for each array of a call, until both the body and the worker have released it.

        Args:
            call: the owner of the buffers.
            operands: the sources of the operands.
            results: the types of the results.
            space: a part of the caller's segment, which receives the results if they fit.
            kept: the ids of results that stay on the mesh.
        """
        buffers = CallBuffers()
        try:
            through_link = sum(operand.travelling_bytes for operand in operands) <= INLINE_LINK_BYTES
            spans = [
                self._assign_operand(call, buffers, operand, f"operand {i}", through_link)
                for i, operand in enumerate(operands)
            ]
            in_region = [span for span in spans if span is not None]
            if kept:
                buffers.results = [link_pb2.ResultDestination(array_id=array_id) for array_id in kept]
            elif not self._assign_segment(call, buffers, results, space):
                in_region += _assign_results(buffers, results)
            if in_region:
                buffers.region_bytes = _lay_out(in_region)
                buffers.region = self._arena.acquire(call.owner, buffers.region_bytes)
                buffers.memory.append(buffers.region)
                for span, _ in in_region:
                    span.memory_id = buffers.region.memory_id
            yield buffers
            _count(call, operands, results, buffers)
        finally:
            buffers.release()
            self.calls += 1

    def _assign_operand(
        self, call: ServerCall, buffers: CallBuffers, operand: OperandSource, field: str, through_link: bool
    ) -> tuple[link_pb2.MemorySpan, int] | None:
        """Adds the location of an operand; returns its span and size if it is to be laid out in the region."""
        data = link_pb2.TensorData()
        buffers.operands.append(data)
        if operand.resident is not None:
            data.array_id = operand.resident.array_id
        elif operand.segment is not None and operand.type is not None:
            begin, nbytes = operand.segment.offset, operand.type.nbytes
            segment = self._acquire_segment(call, buffers, operand.segment.segment_id, begin, nbytes, field)
            data.span.memory_id = segment.memory_id
            data.span.offset = operand.segment.offset
        elif operand.travelling_bytes and not through_link:
            data.span.SetInParent()
            return data.span, operand.travelling_bytes
        return None

    def _assign_segment(
        self,
        call: ServerCall,
        buffers: CallBuffers,
        results: Sequence[ArrayType],
        space: kernel_service_pb2.SegmentSpace | None,
    ) -> bool:
        """Assigns the results to the caller's segment if they fit there; returns whether they do."""
        if space is None or sum(aligned(result.nbytes) for result in results) > space.size_bytes:
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


def _count(
    call: ServerCall, operands: Sequence[OperandSource], results: Sequence[ArrayType], buffers: CallBuffers
) -> None:
    """Counts the bytes of a call that has moved all its arrays."""
    for operand in operands:
        call.received_bytes += operand.travelling_bytes
        call.shared_bytes += operand.type.nbytes if operand.type and operand.segment is not None else 0
    nbytes = sum(result.nbytes for result in results)
    if buffers.segment_id:
        call.shared_bytes += nbytes
    elif not any(destination.HasField("array_id") for destination in buffers.results):
        call.sent_bytes += nbytes


def _assign_results(buffers: CallBuffers, results: Sequence[ArrayType]) -> list[tuple[link_pb2.MemorySpan, int]]:
    buffers.results = [link_pb2.ResultDestination() for _ in results]
    if sum(result.nbytes for result in results) <= INLINE_LINK_BYTES:
        return []
    for destination in buffers.results:
        destination.span.SetInParent()
    return [(to.span, result.nbytes) for to, result in zip(buffers.results, results, strict=True)]


def _lay_out(spans: Sequence[tuple[link_pb2.MemorySpan, int]]) -> int:
    """Sets the offset of each array in the region; returns the size of the region."""
    end = 0
    for span, nbytes in spans:
        span.offset = end
        end += aligned(nbytes)
    return end

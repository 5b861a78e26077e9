"""Where the arrays of one call lie while it is worked on."""

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
"""Operands or results of at most this many bytes together go through the link itself."""


@dataclass(frozen=True)
class OperandSource:
    """An operand as its sender gave it.

    Attributes:
        type: what it is; None for one left out.
        segment: where it lies in its sender's segment.
        resident: the array on the mesh that it is.
    """

    type: ArrayType | None
    segment: kernel_service_pb2.SegmentRegion | None = None
    resident: ResidentArray | None = None

    @property
    def travelling_bytes(self) -> int:
        """The bytes of it that come in messages."""
        return self.type.nbytes if self.type and self.segment is None and self.resident is None else 0


class _CountedMemory(MemoryFile, Protocol):
    """Memory with counted users."""

    def acquire(self) -> None: ...
    def release(self) -> None: ...


@dataclass
class CallBuffers:
    """Where the arrays of a call lie.

    Attributes:
        region: the call's own memory; None if it needs none.
        region_bytes: how much of it is used.
        operands: where each operand is; those that come through the link are empty until they have come.
        results: where each result goes.
        segment_id: the segment that results go to; empty if they do not.
        memory: all memory that the worker must map.
    """

    region: Region | None = None
    region_bytes: int = 0
    operands: list[link_pb2.TensorData] = field(default_factory=list)
    results: list[link_pb2.ResultDestination] = field(default_factory=list)
    segment_id: bytes = b""
    memory: list[_CountedMemory] = field(default_factory=list)

    def view(self, place: link_pb2.MemorySpan, nbytes: int) -> np.ndarray:
        """The bytes of an array that lies in the region."""
        assert self.region is not None
        return self.region.view(place.offset, nbytes)

    def acquire(self) -> None:
        """Adds a user of the memory, such as the worker."""
        for memory in self.memory:
            memory.acquire()

    def release(self) -> None:
        """Ends one use of the memory."""
        for memory in self.memory:
            memory.release()


class BufferAllocator:
    """Makes room for the arrays of calls.

    Args:
        arena: memory for those that travel.
        segments: memory that clients share.

    Attributes:
        calls: how many had room and have ended, of the last few some perhaps not counted.
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
        """Finds a place for each array of a call; given back after the body, unless the worker still holds it.

        Args:
            call: whose they are.
            operands: as given.
            results: what will come of them.
            space: where the results may go; they do if they fit.
            kept: the ids of results that stay on the mesh.
        """
        buffers = CallBuffers()
        try:
            through_link = sum(operand.travelling_bytes for operand in operands) <= INLINE_LINK_BYTES
            placed = [
                self._place(call, buffers, operand, f"operand {i}", through_link) for i, operand in enumerate(operands)
            ]
            in_region = [place for place in placed if place is not None]
            if kept:
                buffers.results = [link_pb2.ResultDestination(array_id=array_id) for array_id in kept]
            elif not self._assign_segment(call, buffers, results, space):
                in_region += _result_places(buffers, results)
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

    def _place(
        self, call: ServerCall, buffers: CallBuffers, operand: OperandSource, field: str, through_link: bool
    ) -> tuple[link_pb2.MemorySpan, int] | None:
        """Says where an operand is; returns its place in the region, to be laid out, if it goes there."""
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
        """Puts the results into their caller's segment, if they fit there."""
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
    """Notes the bytes of arrays that a call moved, all of them by the time that it ends well."""
    for operand in operands:
        call.received_bytes += operand.travelling_bytes
        call.shared_bytes += operand.type.nbytes if operand.type and operand.segment is not None else 0
    nbytes = sum(result.nbytes for result in results)
    if buffers.segment_id:
        call.shared_bytes += nbytes
    elif not any(place.HasField("array_id") for place in buffers.results):
        call.sent_bytes += nbytes


def _result_places(buffers: CallBuffers, results: Sequence[ArrayType]) -> list[tuple[link_pb2.MemorySpan, int]]:
    buffers.results = [link_pb2.ResultDestination() for _ in results]
    if sum(result.nbytes for result in results) <= INLINE_LINK_BYTES:
        return []
    for place in buffers.results:
        place.span.SetInParent()
    return [(place.span, result.nbytes) for place, result in zip(buffers.results, results, strict=True)]


def _lay_out(places: Sequence[tuple[link_pb2.MemorySpan, int]]) -> int:
    """Gives each array its offset; returns the bytes of all."""
    end = 0
    for span, nbytes in places:
        span.offset = end
        end += aligned(nbytes)
    return end

"""Which arrays of a call go through shared memory, and what becomes of their memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import grpc
import numpy as np

from shardcall._src.access.addresses import Address
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.memory.room import Room
from shardcall._src.memory.segment import Block, Segment, open_segment
from shardcall._src.memory.segments import Segments
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.copying import Copier
from shardcall._src.transfer.upload import RIDES_ALONG_BYTES, Value
from shardcall._src.types.arrays import Array, NDArray, type_of
from shardcall._src.types.arrays import empty as empty_array
from shardcall._src.types.errors import ShardcallError
from shardcall._src.types.server_info import Limits
from shardcall.v1 import kernel_service_pb2

_Value = TypeVar("_Value")
_SEGMENT_NOT_FOUND = "SEGMENT_NOT_FOUND"

# The server checks their bytes, and a client could change them afterwards; so it refuses them here.
_CHECKED_TYPES = {"bool", "int4", "uint4"}

# What the server answers before anything is launched.
_NOTHING_RAN = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
)
_NOTHING_RAN_REASONS = ("CALL_TOO_LARGE", "SERVER_BUSY", "QUOTA_EXCEEDED", "RESIDENT_LIMIT", "SERVER_DRAINING")


class Shared:
    """The memory that one call shares with the server.

    Leaving its block frees what the call took of it, except for results that were read in place. After an error the
    server may still use the memory, if the call had begun there; the segments are then given up as a whole.

    Attributes:
        regions: where operands lie, by index.
        room: where results may be put.
    """

    def __init__(self, segments: Segments) -> None:
        self.regions: dict[int, kernel_service_pb2.SegmentRegion] = {}
        self.room: Room | None = None
        self._segments = segments
        self._temporary: list[Block] = []
        self._segment_ids: set[bytes] = set()

    def refer(self, index: int, region: kernel_service_pb2.SegmentRegion) -> None:
        """Takes an operand that lies in a segment already."""
        self.regions[index] = region
        self._segment_ids.add(region.segment_id)

    def hold(self, index: int, block: Block) -> None:
        """Takes an operand that has been copied to a block."""
        self._temporary.append(block)
        self.refer(index, block.region())

    def make_room(self, block: Block) -> None:
        """Takes a block for results."""
        self._segment_ids.add(block.segment_id)
        self.room = Room(block)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object, /) -> None:
        if error is None or _nothing_ran(error):
            for block in self._temporary:
                block.release()
            if self.room is not None:
                self.room.close()
        else:
            self._segments.retire(self._segment_ids)


class Sharing:
    """How a client's arrays go through shared memory; safe to use from several threads at once.

    Args:
        segments: the memory.
        limits: of the server.
    """

    def __init__(self, segments: Segments, limits: Limits) -> None:
        self._segments = segments
        self._limits = limits
        self._copier = Copier()

    def place(self, operands: Sequence[Value], room_bytes: int, deadline: Deadline) -> Shared | None:
        """Copies operands to shared memory, and makes room for results.

        Args:
            operands: in any layout.
            room_bytes: what results need; 0 for no room.
            deadline: of the call.

        Returns:
            What the call shares; None where that is not worth it or nothing could be had.
        """
        if not self._is_worth_it(room_bytes + sum(o.nbytes for o in operands if isinstance(o, np.ndarray))):
            return None
        shared = Shared(self._segments)
        copies: list[tuple[int, NDArray]] = []
        for index, operand in enumerate(operands):
            if operand is None or isinstance(operand, RemoteArray) or not _may_lie(type_of(operand)):
                continue
            if (region := self._locate(operand)) is not None:
                shared.refer(index, region)
            elif operand.nbytes > RIDES_ALONG_BYTES:
                copies.append((index, operand))
        sizes = [operand.nbytes for _, operand in copies]
        blocks = self._reserve([*sizes, room_bytes] if room_bytes else sizes, deadline)
        if blocks is None and room_bytes:
            blocks = self._reserve(sizes, deadline)
        for (index, operand), block in zip(copies, blocks or (), strict=False):
            self._copier.copy(block.array(type_of(operand)), operand)
            shared.hold(index, block)
        if blocks is not None and len(blocks) > len(copies):
            shared.make_room(blocks[-1])
        return shared if shared.regions or shared.room else None

    def empty(self, kind: Array, deadline: Deadline) -> NDArray:
        """Returns an uninitialized array that lies in shared memory if some can be had and is of use for it."""
        of_use = _may_lie(kind) and kind.nbytes > RIDES_ALONG_BYTES and self._segments.may_share
        blocks = self._reserve([kind.nbytes], deadline) if of_use else None
        return blocks[0].array(kind) if blocks else empty_array(kind)

    def forget(self) -> None:
        """Gives up all segments, which the server no longer knows."""
        self._segments.retire()

    def close(self) -> None:
        """Gives back the segments; arrays that lie in them stay as they are."""
        self._segments.close()
        self._copier.close()

    def _is_worth_it(self, nbytes: int) -> bool:
        return nbytes >= max(self._limits.min_segment_bytes, 1) and self._segments.may_share

    def _locate(self, operand: NDArray) -> kernel_service_pb2.SegmentRegion | None:
        little = operand.dtype.isnative  # as is the host
        return self._segments.locate(operand) if operand.nbytes and little else None

    def _reserve(self, sizes: Sequence[int], deadline: Deadline) -> list[Block] | None:
        return self._segments.reserve(sizes, deadline) if sizes else []


def sharing(transport: Transport, limits: Limits, address: Address) -> Sharing | None:
    """Returns how to share memory with a server; None where that cannot be."""
    if not address.is_local or not limits.max_segment_bytes or sys.platform != "linux" or sys.byteorder != "little":
        return None
    opener: Callable[[int, Deadline], Segment] = partial(open_segment, transport)
    return Sharing(Segments(opener, limits.max_segment_bytes), limits)


def run_shared(
    sharing: Sharing | None,
    operands: Sequence[Value],
    room_bytes: int,
    deadline: Deadline,
    run: Callable[[Shared | None], _Value],
) -> _Value:
    """Runs a call with shared memory where that can be and is worth it, else without.

    Args:
        sharing: how to share; None where that cannot be.
        operands: as of `Sharing.place`.
        room_bytes: likewise.
        deadline: of the call.
        run: makes the call with what it shares; once more, with None, if the server does not know the memory.
    """
    shared = None if sharing is None else sharing.place(operands, room_bytes, deadline)
    if sharing is not None and shared is not None:
        try:
            with shared:
                return run(shared)
        except ShardcallError as error:
            if error.reason != _SEGMENT_NOT_FOUND:
                raise
        sharing.forget()
    return run(None)


def _may_lie(kind: Array) -> bool:
    return kind.dtype.name not in _CHECKED_TYPES


def _nothing_ran(error: BaseException) -> bool:
    if not isinstance(error, ShardcallError) or not error.reason:
        return False
    return error.status in _NOTHING_RAN or error.reason in _NOTHING_RAN_REASONS

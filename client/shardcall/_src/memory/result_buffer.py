"""Space in a segment for the results of a call."""

from __future__ import annotations

from shardcall._src.memory.segment import ALIGNMENT, Block
from shardcall.v1 import kernel_service_pb2
from shardcall_core.types.arrays import Array, NDArray

# A smaller result is copied: read in place, it would keep its segment alive.
_SMALL_BYTES = 64 * 2**10


class ResultBuffer:
    """Space in a segment for the results of one call, which the server fills in order.

    Args:
        block: the space.
    """

    def __init__(self, block: Block) -> None:
        self._block = block

    def message(self) -> kernel_service_pb2.SegmentSpace:
        """Returns the space as a message."""
        block = self._block
        return kernel_service_pb2.SegmentSpace(
            segment_id=block.segment_id, offset=block.offset, size_bytes=block.nbytes
        )

    def claim(self, region: kernel_service_pb2.SegmentRegion, result_type: Array) -> NDArray | None:
        """Returns a result of the server, which owns its part of the space, or is a copy if small.

        Args:
            region: the region of the result, after those claimed before.
            result_type: the result's type, of one byte or more.

        Returns:
            A writeable array; None if the region is outside the remaining space.
        """
        block = self._block
        inside = block.offset <= region.offset and region.offset + result_type.nbytes <= block.offset + block.nbytes
        if region.segment_id != block.segment_id or region.offset % ALIGNMENT or not inside:
            return None
        array = block.carve(region.offset, result_type.nbytes).array(result_type)
        return array.copy() if result_type.nbytes <= _SMALL_BYTES else array

    def close(self) -> None:
        """Frees the space that was not claimed."""
        self._block.release()

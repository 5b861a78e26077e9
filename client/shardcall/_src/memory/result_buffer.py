"""Space in a segment that results may be put to."""

from __future__ import annotations

from shardcall._src.memory.segment import ALIGNMENT, Block
from shardcall._src.types.arrays import Array, NDArray
from shardcall.v1 import kernel_service_pb2

# Read in place it would keep a whole segment for as long as it lives.
_SMALL_BYTES = 64 * 2**10


class ResultBuffer:
    """Space in a segment that the results of one call may be put to, one after the other.

    Args:
        block: the space.
    """

    def __init__(self, block: Block) -> None:
        self._block = block

    def message(self) -> kernel_service_pb2.SegmentSpace:
        """The space as the wire holds it."""
        block = self._block
        return kernel_service_pb2.SegmentSpace(
            segment_id=block.segment_id, offset=block.offset, size_bytes=block.nbytes
        )

    def claim(self, region: kernel_service_pb2.SegmentRegion, kind: Array) -> NDArray | None:
        """Returns the result that the server has put there; it owns its part of the space, or is a copy if small.

        Args:
            region: where it says that the result lies, after those claimed before.
            kind: the result's type, of one byte at least.

        Returns:
            A writeable array; None if it would not lie in the space that is left.
        """
        block = self._block
        inside = block.offset <= region.offset and region.offset + kind.nbytes <= block.offset + block.nbytes
        if region.segment_id != block.segment_id or region.offset % ALIGNMENT or not inside:
            return None
        array = block.carve(region.offset, kind.nbytes).array(kind)
        return array.copy() if kind.nbytes <= _SMALL_BYTES else array

    def close(self) -> None:
        """Frees what has not been claimed."""
        self._block.release()

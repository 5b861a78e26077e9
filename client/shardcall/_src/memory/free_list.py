"""A first-fit allocator of ranges."""

from __future__ import annotations

from bisect import bisect


class FreeList:
    """The free ranges of a segment: the first that fits is allocated, adjacent free ranges are merged.

    Args:
        nbytes: the size of the segment, all of which is free.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._ranges = [(0, nbytes)]  # (begin, end), ascending, never adjacent

    @property
    def is_unused(self) -> bool:
        """True if nothing is allocated."""
        return self._ranges == [(0, self._nbytes)]

    def allocate(self, nbytes: int, alignment: int) -> int | None:
        """Allocates a range.

        Args:
            nbytes: its size, more than 0.
            alignment: a divisor of its offset.

        Returns:
            Its offset; None if no free range is large enough.
        """
        for i, (begin, end) in enumerate(self._ranges):
            offset = -(-begin // alignment) * alignment
            if offset + nbytes <= end:
                rest = [(begin, offset), (offset + nbytes, end)]
                self._ranges[i : i + 1] = [(first, last) for first, last in rest if first < last]
                return offset
        return None

    def free(self, offset: int, nbytes: int) -> None:
        """Frees an allocated range, or a part of one."""
        begin, end = offset, offset + nbytes
        at = bisect(self._ranges, (begin, end))
        first, last = at, at
        if at and self._ranges[at - 1][1] == begin:
            first, begin = at - 1, self._ranges[at - 1][0]
        if at < len(self._ranges) and self._ranges[at][0] == end:
            last, end = at + 1, self._ranges[at][1]
        self._ranges[first:last] = [(begin, end)]

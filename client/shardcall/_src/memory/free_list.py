"""Which parts of a piece of memory are free."""

from __future__ import annotations

from bisect import bisect


class FreeList:
    """The free ranges of a piece of memory: the first that fits is taken, neighbours grow together.

    Args:
        nbytes: its size; all of it is free.
    """

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._ranges = [(0, nbytes)]  # of begin and end, ascending, never touching

    @property
    def is_unused(self) -> bool:
        """Whether nothing is taken."""
        return self._ranges == [(0, self._nbytes)]

    def allocate(self, nbytes: int, alignment: int) -> int | None:
        """Takes a range.

        Args:
            nbytes: how long it is, more than 0.
            alignment: what its beginning is a multiple of.

        Returns:
            Its beginning; None if no free range has room for it.
        """
        for i, (begin, end) in enumerate(self._ranges):
            offset = -(-begin // alignment) * alignment
            if offset + nbytes <= end:
                rest = [(begin, offset), (offset + nbytes, end)]
                self._ranges[i : i + 1] = [(first, last) for first, last in rest if first < last]
                return offset
        return None

    def free(self, offset: int, nbytes: int) -> None:
        """Makes a range free that was taken, or part of one that was."""
        begin, end = offset, offset + nbytes
        at = bisect(self._ranges, (begin, end))
        first, last = at, at
        if at and self._ranges[at - 1][1] == begin:
            first, begin = at - 1, self._ranges[at - 1][0]
        if at < len(self._ranges) and self._ranges[at][0] == end:
            last, end = at + 1, self._ranges[at][1]
        self._ranges[first:last] = [(begin, end)]

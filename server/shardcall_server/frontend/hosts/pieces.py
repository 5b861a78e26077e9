"""Blocks of arrays as a run of bytes, without a copy of more than a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

CHUNK_BYTES = 1 << 20

MESSAGE_BYTES = 128 << 20
"""The most in one message of an agent's call: twice what a client's may have, which is part of one."""


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yields an array's elements in row-major order, as views of at most a chunk each.

    A view that is not contiguous has few enough rows to be copied at once.
    """
    if array.nbytes <= CHUNK_BYTES:
        if array.nbytes:
            yield array
    elif array.flags.c_contiguous:
        flat = array.reshape(-1)
        step = CHUNK_BYTES // array.itemsize
        for begin in range(0, flat.size, step):
            yield flat[begin : begin + step]
    else:
        step = len(array) * CHUNK_BYTES // array.nbytes
        if step:
            for begin in range(0, len(array), step):
                yield array[begin : begin + step]
        else:
            for row in array:
                yield from pieces(row)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The elements as uint8[n]: a view where they lie one after the other, else a copy."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Scatter:
    """Puts a run of bytes to where it belongs, however it is cut.

    Args:
        targets: where the bytes go, each with the number of bytes before it that belong nowhere: an array's elements
            in row-major order, one array after the other.
    """

    def __init__(self, targets: Sequence[tuple[int, np.ndarray]]) -> None:
        self._parts = self._plan(targets)
        self._missing = sum(skipped + target.nbytes for skipped, target in targets)
        self._into = np.empty(0, np.uint8)
        self._filled = 0

    @property
    def is_complete(self) -> bool:
        """Whether every byte has come."""
        return self._missing <= 0

    def write(self, data: np.ndarray) -> None:
        """Takes the next bytes, uint8[n]; what comes after the last target belongs nowhere."""
        self._missing -= data.size
        while data.size:
            if self._filled == self._into.size:
                into = next(self._parts, None)
                if into is None:
                    return
                self._into, self._filled = into, 0
            taken = min(self._into.size - self._filled, data.size)
            np.copyto(self._into[self._filled : self._filled + taken], data[:taken])
            data, self._filled = data[taken:], self._filled + taken
        if self._into.size == self._filled:
            self._finish()

    def _finish(self) -> None:
        into = next(self._parts, None)  # has what was copied last put to its place
        self._into, self._filled = (np.empty(0, np.uint8), 0) if into is None else (into, 0)

    def _plan(self, targets: Sequence[tuple[int, np.ndarray]]) -> Iterator[np.ndarray]:
        """Yields where the next bytes go; is asked for more when they are there."""
        for skipped, target in targets:
            if skipped:
                yield np.empty(skipped, np.uint8)
            for piece in pieces(target):
                if piece.flags.c_contiguous:
                    yield piece.reshape(-1).view(np.uint8)
                else:
                    whole = np.empty(piece.nbytes, np.uint8)
                    yield whole
                    piece[...] = whole.view(piece.dtype).reshape(piece.shape)

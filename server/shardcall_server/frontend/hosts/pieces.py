"""Conversion of array blocks to streams of bytes and back, without a copy of more than a chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

CHUNK_BYTES = 1 << 20

MESSAGE_BYTES = 128 << 20
"""The size limit of a message of an agent's call: twice that of a client's, which it contains."""


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
    """Returns the elements as uint8[n]: a view if they are contiguous, else a copy."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Scatter:
    """Distributes a stream of bytes, cut in any way, to arrays.

    Args:
        targets: the arrays, filled one after the other in row-major order, each with the number of bytes to discard
            before it.
    """

    def __init__(self, targets: Sequence[tuple[int, np.ndarray]]) -> None:
        self._parts = self._plan(targets)
        self._missing = sum(skipped + target.nbytes for skipped, target in targets)
        self._into = np.empty(0, np.uint8)
        self._filled = 0

    @property
    def is_complete(self) -> bool:
        """True once every byte has come."""
        return self._missing <= 0

    def write(self, data: np.ndarray) -> None:
        """Writes the next bytes, uint8[n]; bytes after the last target are discarded."""
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
        into = next(self._parts, None)  # resumes the generator, which stores the buffer that was filled last
        self._into, self._filled = (np.empty(0, np.uint8), 0) if into is None else (into, 0)

    def _plan(self, targets: Sequence[tuple[int, np.ndarray]]) -> Iterator[np.ndarray]:
        """Yields buffers for the next bytes; it is resumed when the last one is full."""
        for skipped, target in targets:
            if skipped:
                yield np.empty(skipped, np.uint8)
            for piece in pieces(target):
                if piece.flags.c_contiguous:
                    yield piece.reshape(-1).view(np.uint8)
                else:
                    buffer = np.empty(piece.nbytes, np.uint8)
                    yield buffer
                    piece[...] = buffer.view(piece.dtype).reshape(piece.shape)

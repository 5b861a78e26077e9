"""Copies of an array's rows in this process, a block of them at a time, from which loops read."""

from __future__ import annotations

from typing import Any, Protocol

from shardcall._src.device_arrays.array_properties import PlacedArray
from shardcall_core.types.arrays import NDArray

BLOCK_BYTES = 4 << 20
"""The bytes of a block; an array of no more is one block."""


class ArrayWithRows(Protocol):
    """An array of the mesh with one axis or several, which loops read."""

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""

    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Any: ...
    def _described(self) -> PlacedArray: ...

    def _get_implicitly(self) -> NDArray | None:
        """Copies the values and counts the copy; returns None if the client refuses implicit copies."""


class RowBlocks:
    """The rows of an array, or the elements of one with a single axis, with the values as a loop begins.

    The first row that is read copies the block that it is in. A write to the array ends the copying, since the others
    have other values then.

    Args:
        array: the array.
    """

    def __init__(self, array: ArrayWithRows) -> None:
        self._array = array
        self._version = array._described()._version
        length = max(1, len(array))
        self._size = min(length, BLOCK_BYTES * length // max(1, array.nbytes))  # in rows
        self._latest: tuple[int, NDArray] | None = None
        self._is_refused = False

    def row(self, index: int) -> Any:
        """Returns a row in this process, which callers do not write to.

        Args:
            index: its index, not negative.

        Returns:
            The row; None if the array was written to or deleted, if the client refuses implicit copies, or if a block
            would have fewer than two rows of several elements.
        """
        if self._version.lost or self._array._described()._version is not self._version:
            self._latest = None
            return None
        if self._is_refused:
            return None
        latest = self._latest  # read once: other threads replace it
        if latest is None or not 0 <= index - latest[0] < len(latest[1]):
            latest = self._latest = self._copy(index)
        return None if latest is None else latest[1][index - latest[0]]

    def _copy(self, index: int) -> tuple[int, NDArray] | None:
        """Copies the block that has a row; returns the index of its first row, and its values."""
        length, size = len(self._array), self._size
        if size < min(length, 2):
            return None
        # The last block is as long as the others, since slices of another size compile again.
        start = min(index - index % size, length - size)
        block = self._array if size == length else self._array[start : start + size]
        values = block._get_implicitly()
        self._is_refused = values is None
        return None if values is None else (start, values)

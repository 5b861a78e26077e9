"""Indices as NumPy reads them: integers, slices, ``...``, ``None`` and arrays."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from shardcall_core.layouts.layout import MAX_RANK

BasicKey = SupportsIndex | slice | EllipsisType | None
"""One item of an index."""


class BasicIndex(NamedTuple):
    """The arguments of the kernels ``getitem`` and ``setitem`` that stand for an index.

    Attributes:
        starts: the first index along each axis of the array.
        sizes: the number of elements along each axis.
        steps: the steps between them; negative ones go towards the first.
        dropped: the axes of the array that integers index, which the result does not have.
        inserted: the axes of the result that stand for None.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    dropped: tuple[int, ...]
    inserted: tuple[int, ...]

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """All but the starts."""
        return {"sizes": self.sizes, "steps": self.steps, "dropped": self.dropped, "inserted": self.inserted}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements at the index."""
        kept = [size for axis, size in enumerate(self.sizes) if axis not in self.dropped]
        for axis in self.inserted:
            kept.insert(axis, 1)
        return tuple(kept)


class ArrayIndex(NamedTuple):
    """An index with arrays, as a basic index and what arrays then index.

    Attributes:
        key: the basic index, with a full slice for each axis that an array indexes.
        axes: the axes that arrays index, of the array that the basic index gives.
        arrays: the arrays of indices, one for each of the axes.
        position: the position of the arrays' axes in the result, among the other axes.
    """

    key: tuple[BasicKey, ...]
    axes: tuple[int, ...]
    arrays: tuple[Any, ...]
    position: int


def is_basic(item: object) -> bool:
    """Returns True for an item of an index that is an integer, a slice, ``...`` or ``None``.

    Arrays and sequences, tuples too, index element by element; arrays of this process that have no axes and an integer
    type count as integers.
    """
    if type(item) is slice or type(item) is int or item is None or item is Ellipsis:
        return True
    if isinstance(item, bool | np.bool_) or getattr(item, "shape", ()) != ():
        return False
    if hasattr(type(item), "__remote_array__"):  # whose value nobody has to wait for
        return False
    try:
        operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def basic_index(shape: Sequence[int], key: Any) -> BasicIndex:
    """Returns the index as the arguments of ``getitem``.

    Args:
        shape: the shape of the array.
        key: as between brackets: one item, or a tuple of them.

    Raises:
        IndexError: in NumPy's words, for integers out of range, too many indices, items that are no indices, and a
            result of more axes than an array may have.
        TypeError: for slices of anything but integers.
        ValueError: for a step of 0.
    """
    items = key if isinstance(key, tuple) else (key,)
    counted = [item for item in items if item is not None and item is not Ellipsis]
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    for item in counted:
        if type(item) is not slice and not is_basic(item):
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
                "are valid indices"
            )
    if len(counted) > len(shape):
        raise IndexError(
            f"too many indices for array: array is {len(shape)}-dimensional, but {len(counted)} were indexed"
        )
    starts, sizes, steps = [0] * len(shape), list(shape), [1] * len(shape)
    dropped, inserted = list[int](), list[int]()
    axis = result_axis = 0
    missing = len(shape) - len(counted)
    if not any(item is Ellipsis for item in items):
        items = (*items, Ellipsis)
    for item in items:
        if item is None:
            inserted.append(result_axis)
            result_axis += 1
        elif item is Ellipsis:
            axis += missing
            result_axis += missing
        elif isinstance(item, slice):
            chosen = range(*item.indices(shape[axis]))
            sizes[axis] = len(chosen)
            # One element, or none, has no step; a slice of all elements is one from 0.
            starts[axis], steps[axis] = (chosen.start, chosen.step) if len(chosen) > 1 else (chosen.start, 1)
            if not chosen:
                starts[axis] = 0
            axis += 1
            result_axis += 1
        else:
            starts[axis], sizes[axis] = _counted(item, axis, shape[axis]), 1
            dropped.append(axis)
            axis += 1
    if result_axis > MAX_RANK:
        raise IndexError(
            f"number of dimensions must be within [0, {MAX_RANK}], indexing result would have {result_axis}"
        )
    return BasicIndex(tuple(starts), tuple(sizes), tuple(steps), tuple(dropped), tuple(inserted))


def array_index(ndim: int, items: Sequence[Any]) -> ArrayIndex:
    """Returns an index with arrays as a basic index and the arrays.

    Args:
        ndim: the number of axes of the array.
        items: the items of the index; arrays are of integers, or True or False, which have no axis.

    Raises:
        IndexError: for too many indices.
    """
    used = sum(not (item is None or item is Ellipsis or _is_flag(item)) for item in items)
    if used > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed")
    key, axes, arrays = list[BasicKey](), list[int](), list[Any]()
    position = between = -1  # of the first array or integer; of the first other item behind it
    axis = 0
    for item in items:
        if item is None or item is Ellipsis or isinstance(item, slice):
            if position >= 0 and between < 0:
                between = axis
            key.append(item)
            axis += ndim - used if item is Ellipsis else 1
            continue
        if position < 0:
            position = axis
        elif between >= 0:
            position = 0
        if is_basic(item):
            key.append(item)
            continue
        arrays.append(np.zeros(int(item), np.int64) if _is_flag(item) else item)
        key.append(None if _is_flag(item) else slice(None))
        axes.append(axis)
        axis += 1
    return ArrayIndex(tuple(key), tuple(axes), tuple(arrays), position)


def _is_flag(item: object) -> bool:
    return isinstance(item, bool | np.bool_)


def _counted(item: SupportsIndex, axis: int, size: int) -> int:
    index = operator.index(item)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    return index % size

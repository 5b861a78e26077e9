"""Basic indexing: integers, slices, ``...`` and ``None``, as NumPy reads them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

BasicKey = SupportsIndex | slice | EllipsisType | None
"""One item of an index."""


class BasicIndex(NamedTuple):
    """The arguments of the kernel ``getitem`` that stand for an index.

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


def is_basic(key: object) -> bool:
    """Returns True for an index of integers, slices, ``...`` and ``None`` alone.

    Arrays and sequences index element by element; those of no axes and of an integer type count as integers.
    """
    return all(_is_basic_item(item) for item in (key if isinstance(key, tuple) else (key,)))


def basic_index(shape: Sequence[int], key: Any) -> BasicIndex:
    """Returns the index as the arguments of ``getitem``.

    Args:
        shape: the shape of the array.
        key: as between brackets: one item, or a tuple of them.

    Raises:
        IndexError: in NumPy's words, for integers out of range, too many indices and items that are no indices.
        TypeError: for slices of anything but integers.
        ValueError: for a step of 0.
    """
    items = key if isinstance(key, tuple) else (key,)
    counted = [item for item in items if item is not None and item is not Ellipsis]
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    for item in counted:
        if not _is_basic_item(item):
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
    return BasicIndex(tuple(starts), tuple(sizes), tuple(steps), tuple(dropped), tuple(inserted))


def _is_basic_item(item: object) -> bool:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return True
    if isinstance(item, bool | np.bool_) or getattr(item, "shape", ()) != ():
        return False
    try:
        operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _counted(item: SupportsIndex, axis: int, size: int) -> int:
    index = operator.index(item)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    return index % size

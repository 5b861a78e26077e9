"""Permutations of axes that stand for ``numpy.moveaxis`` and ``numpy.swapaxes``, as arguments of `transpose`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple


def moved_axes(
    ndim: int, source: SupportsIndex | Sequence[SupportsIndex], destination: SupportsIndex | Sequence[SupportsIndex]
) -> tuple[int, ...]:
    """Returns the axis of the array for each axis of ``numpy.moveaxis``.

    Args:
        ndim: the number of axes of the array.
        source: the axes that move.
        destination: their positions in the result.

    Raises:
        numpy.exceptions.AxisError: for an axis that there is not.
        ValueError: for an axis that is named twice, and different numbers of axes.
    """
    moving = normalize_axis_tuple(source, ndim, "source")  # type: ignore[arg-type]
    positions = normalize_axis_tuple(destination, ndim, "destination")  # type: ignore[arg-type]
    if len(moving) != len(positions):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    result = [axis for axis in range(ndim) if axis not in moving]
    for position, axis in sorted(zip(positions, moving, strict=True)):
        result.insert(position, axis)
    return tuple(result)


def swapped_axes(ndim: int, axis1: SupportsIndex, axis2: SupportsIndex) -> tuple[int, ...]:
    """Returns the axis of the array for each axis of ``numpy.swapaxes``.

    Raises:
        numpy.exceptions.AxisError: for an axis that there is not.
    """
    one, other = (
        normalize_axis_index(operator.index(axis), ndim, prefix)
        for axis, prefix in ((axis1, "axis1"), (axis2, "axis2"))
    )
    result = list(range(ndim))
    result[one], result[other] = other, one
    return tuple(result)

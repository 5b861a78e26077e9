"""Functions that arrange the axes of an array, and that describe it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.device_arrays.views import axes_in_order, is_contiguous
from shardcall.namespace.base import NamespaceBase, array_of, copied, counted_axis, type_of
from shardcall.namespace.integers import integer, integers
from shardcall_core.functions.permutations import moved_axes, swapped_axes


def ravel(xp: NamespaceBase, x: OperandLike, order: str = "C") -> Any:
    """Returns the elements in one axis, as ``numpy.ravel``: of a view with gaps in its memory as a copy.

    Args:
        x: [...] the array.
        order: the sequence of the elements: ``"C"`` row by row, ``"F"`` column by column, ``"A"`` column by column of a
            view that is so in memory, ``"K"`` as in memory.
    """
    if (axes := axes_in_order(array_of(x), order)) is not None:
        x = xp.transpose(x, axes)
    flat = xp.reshape(x, -1)
    return flat if not isinstance(x, RemoteArray) or is_contiguous(x) else copied(flat)


def matrix_transpose(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns an array with its last two axes exchanged.

    Raises:
        ValueError: if it has fewer than two axes.
    """
    ndim = type_of(x).ndim
    if ndim < 2:
        raise ValueError(f"an array of {ndim} axes has no matrices to transpose; it needs at least two")
    return swapaxes(xp, x, -1, -2)


def swapaxes(xp: NamespaceBase, x: OperandLike, axis1: int, axis2: int) -> Any:
    """Returns an array with two axes exchanged, as ``numpy.swapaxes``."""
    return xp.transpose(x, swapped_axes(type_of(x).ndim, integer("axis1", axis1), integer("axis2", axis2)))


def moveaxis(xp: NamespaceBase, x: OperandLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """Returns an array with axes at other positions, as ``numpy.moveaxis``."""
    axes = integers("source", source), integers("destination", destination)
    return xp.transpose(x, moved_axes(type_of(x).ndim, *axes))


def rollaxis(xp: NamespaceBase, a: OperandLike, axis: SupportsIndex, start: SupportsIndex = 0) -> Any:
    """Returns an array with an axis moved before another one, as ``numpy.rollaxis``.

    Args:
        a: [...] the array.
        axis: the axis that is moved.
        start: the axis before which it is afterwards, or the number of axes to make it the last one.

    Raises:
        numpy.exceptions.AxisError: for axes that there are not.
    """
    ndim, position = type_of(a).ndim, integer("start", start)
    moved = counted_axis(axis, ndim)
    if not -ndim <= position <= ndim:
        raise np.exceptions.AxisError(f"start={position}, and a has {ndim} axes; give {-ndim} to {ndim}")
    position += ndim if position < 0 else 0
    axes = [i for i in range(ndim) if i != moved]
    axes.insert(position - (moved < position), moved)
    return xp.transpose(a, axes)


def broadcast_arrays(xp: NamespaceBase, *arrays: OperandLike) -> tuple[Any, ...]:
    """Returns arrays that have been broadcast to one shape, as ``numpy.broadcast_arrays``; one of it as it is."""
    shape = np.broadcast_shapes(*(type_of(array).shape for array in arrays))
    return tuple(
        array if isinstance(array, RemoteArray) and array.shape == shape else xp.broadcast_to(array, shape)
        for array in arrays
    )


def unstack(xp: NamespaceBase, x: OperandLike, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Returns the parts of an array along an axis, which they do not have, as ``numpy.unstack``."""
    first = moveaxis(xp, x, integer("axis", axis), 0)
    return tuple(first[i] for i in range(type_of(x).shape[axis]))


def shape(_: NamespaceBase, a: OperandLike) -> tuple[int, ...]:
    """Returns the size of each axis."""
    return type_of(a).shape


def ndim(_: NamespaceBase, a: OperandLike) -> int:
    """Returns the number of axes."""
    return type_of(a).ndim


def size(_: NamespaceBase, a: OperandLike, axis: int | tuple[int, ...] | None = None) -> int:
    """Returns the number of elements, or of those along one or more axes."""
    shape = type_of(a).shape
    return math.prod(shape if axis is None else (shape[i] for i in normalize_axis_tuple(axis, len(shape))))


def iscomplexobj(_: NamespaceBase, x: OperandLike) -> bool:
    """Returns whether the element type is complex."""
    return type_of(x).dtype.kind == "c"


def isrealobj(xp: NamespaceBase, x: OperandLike) -> bool:
    """Returns whether the element type is not complex."""
    return not iscomplexobj(xp, x)

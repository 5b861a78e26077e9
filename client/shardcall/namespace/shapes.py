"""Functions that arrange the axes of an array, and that describe it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, type_of
from shardcall_core.functions.permutations import moved_axes, swapped_axes


class ShapeNamespace(NamespaceBase):
    """Arrangements of axes, and descriptions of arrays."""

    def ravel(self, x: OperandLike) -> Any:
        """Returns the elements in one axis, as ``numpy.ravel``."""
        return self.reshape(x, -1)

    def matrix_transpose(self, x: OperandLike) -> Any:
        """Returns an array with its last two axes exchanged.

        Raises:
            ValueError: if it has fewer than two axes.
        """
        ndim = type_of(x).ndim
        if ndim < 2:
            raise ValueError(f"an array of {ndim} axes has no matrices to transpose; it needs at least two")
        return self.swapaxes(x, -1, -2)

    def swapaxes(self, x: OperandLike, axis1: int, axis2: int) -> Any:
        """Returns an array with two axes exchanged, as ``numpy.swapaxes``."""
        return self.transpose(x, swapped_axes(type_of(x).ndim, axis1, axis2))

    def moveaxis(self, x: OperandLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
        """Returns an array with axes at other positions, as ``numpy.moveaxis``."""
        return self.transpose(x, moved_axes(type_of(x).ndim, source, destination))

    def broadcast_arrays(self, *arrays: OperandLike) -> tuple[Any, ...]:
        """Returns arrays that have been broadcast to one shape, as ``numpy.broadcast_arrays``."""
        shape = np.broadcast_shapes(*(type_of(array).shape for array in arrays))
        return tuple(self.broadcast_to(array, shape) for array in arrays)

    def unstack(self, x: OperandLike, /, *, axis: int = 0) -> tuple[Any, ...]:
        """Returns the parts of an array along an axis, which they do not have, as ``numpy.unstack``."""
        first = self.moveaxis(x, axis, 0)
        return tuple(first[i] for i in range(type_of(x).shape[axis]))

    def shape(self, a: OperandLike) -> tuple[int, ...]:
        """Returns the size of each axis."""
        return type_of(a).shape

    def ndim(self, a: OperandLike) -> int:
        """Returns the number of axes."""
        return type_of(a).ndim

    def size(self, a: OperandLike, axis: int | tuple[int, ...] | None = None) -> int:
        """Returns the number of elements, or of those along one or more axes."""
        shape = type_of(a).shape
        return math.prod(shape if axis is None else (shape[i] for i in normalize_axis_tuple(axis, len(shape))))

    def iscomplexobj(self, x: OperandLike) -> bool:
        """Returns whether the element type is complex."""
        return type_of(x).dtype.kind == "c"

    def isrealobj(self, x: OperandLike) -> bool:
        """Returns whether the element type is not complex."""
        return not self.iscomplexobj(x)

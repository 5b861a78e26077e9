"""Functions whose results have as many elements as a condition is true for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.namespace.arithmetic import ArithmeticNamespace
from shardcall.namespace.base import counted_axis, type_of
from shardcall.namespace.shapes import ShapeNamespace

_LEAST = 64
"""The least length, but 0, to which numbers of elements are rounded up."""


class SearchingNamespace(ArithmeticNamespace, ShapeNamespace):
    """Elements that are not zero. These functions wait for their number, and then run without waiting."""

    def flatnonzero(self, a: OperandLike) -> Any:
        """Returns the indices of the elements of the flattened array that are not zero, as ``numpy.flatnonzero``."""
        indices, count = self._padded_indices(a)
        return _first(indices, count)

    def nonzero(self, a: OperandLike) -> tuple[Any, ...]:
        """Returns the indices of the elements that are not zero, one array for each axis, as ``numpy.nonzero``.

        Raises:
            ValueError: for an array of no axes.
        """
        shape = type_of(a).shape
        if not shape:
            raise ValueError("nonzero of an array of no axes is not defined; use atleast_1d, or reshape it to (1,)")
        (rest, count), indices = self._padded_indices(a), list[Any]()
        for size in reversed(shape[1:]):
            indices.append(self.remainder(rest, max(size, 1)))
            rest = self.floor_divide(rest, max(size, 1))
        return tuple(_first(each, count) for each in (rest, *reversed(indices)))

    def argwhere(self, a: OperandLike) -> Any:
        """Returns the indices of the elements that are not zero, a row for each, as ``numpy.argwhere``."""
        if not type_of(a).ndim:
            return self.argwhere(self.reshape(a, (1,)))[:, :0]
        return self.stack(self.nonzero(a), axis=1)

    def where(  # with NumPy's form of one argument
        self, condition: OperandLike, x: OperandLike | None = None, y: OperandLike | None = None, **options: Any
    ) -> Any:
        """Returns elements of x where the condition is true and of y elsewhere; with one argument as `nonzero`.

        Args:
            condition: an array or a scalar.
            x: an array or a scalar that broadcasts with the condition.
            y: the same.
            options: as of `Client.where`.

        Raises:
            ValueError: for only one of x and y.
        """
        if x is None and y is None:
            return self.nonzero(condition)
        if x is None or y is None:
            raise ValueError("where takes both x and y, or neither")
        return super().where(condition, x, y, **options)

    def compress(self, condition: OperandLike, a: OperandLike, axis: int | None = None) -> Any:
        """Returns the elements along an axis for which a condition of one axis is true, as ``numpy.compress``.

        Raises:
            ValueError: for a condition of more axes.
        """
        if type_of(condition).ndim != 1:
            raise ValueError("condition must be a 1-d array")
        return self._chosen(a, condition, axis)

    def extract(self, condition: OperandLike, arr: OperandLike) -> Any:
        """Returns the elements of the flattened array for which a condition is true, as ``numpy.extract``."""
        return self._chosen(arr, condition, None)

    def _chosen(self, x: OperandLike, condition: OperandLike, axis: int | None) -> Any:
        """Returns the elements along an axis for which a condition is true; of the flattened array for None."""
        if find_remote_array(condition) is None:
            return self.take(x, np.flatnonzero(np.asarray(condition)), axis)
        indices, count = self._padded_indices(condition)
        return _first(self.take(x, indices, axis), count, axis or 0)

    def _padded_indices(self, condition: OperandLike) -> tuple[Any, int]:
        """Returns the indices for which a condition is true, then zeros, and the number of the indices.

        The programs that find and take many elements are compiled once for all numbers that are rounded up to one
        length; that of the slice of the result, which every number needs, is compiled in a fraction of the time.
        """
        count, most = int(self.count_nonzero(condition)), math.prod(type_of(condition).shape)
        return self.call("flatnonzero", condition, size=_rounded(count, most)), count

    def unique(
        self,
        ar: OperandLike,
        return_index: bool = False,
        return_inverse: bool = False,
        return_counts: bool = False,
        axis: int | None = None,
        *,
        equal_nan: bool = True,
        sorted: bool = True,  # noqa: A002  # NumPy's name
    ) -> Any:
        """Returns the elements that differ, in ascending order, as ``numpy.unique``.

        Args:
            ar: the array.
            return_index: True to return the index of the first of each in the flattened array, too.
            return_inverse: True to return the index of each element in the result, too.
            return_counts: True to return the number of each, too.
            axis: the axis whose slices are compared, of which one with NaN equals none; None for single elements.
            equal_nan: True to take all NaN for equal.
            sorted: as of NumPy; the result is in ascending order anyway.

        Raises:
            AxisError: for an axis that there is not.
        """
        shape = type_of(ar).shape
        if axis is None or len(shape) == 1:
            counted_axis(axis or 0, max(len(shape), 1))
            rows = self.reshape(ar, -1)
            needs_indices = return_index or return_inverse
            order_of: Any = self.argsort(rows) if needs_indices else None
            ascending = self.take(rows, order_of) if needs_indices else self.sort(rows)
            is_first = self._is_first(ascending, equal_nan=equal_nan)
        else:
            rows = self.moveaxis(ar, axis, 0)
            shape = type_of(rows).shape[:1]
            order_of, is_first = self._rows_in_order(rows)
            ascending = self.take(rows, order_of, 0)
        firsts, count = self._padded_indices(is_first)
        results = [_first(self.take(ascending, firsts, 0), count)]
        if axis:
            results[0] = self.moveaxis(results[0], 0, axis)
        if return_index:
            results.append(_first(self.take(order_of, firsts), count))
        if return_inverse:
            numbers = self.subtract(self.cumsum(is_first, dtype=np.int64), 1)
            results.append(self.reshape(self.take(numbers, self.argsort(order_of)), shape))
        if return_counts:
            results.append(self.diff(_first(firsts, count), append=np.int64(type_of(rows).shape[0])))
        return results[0] if len(results) == 1 else tuple(results)

    def _rows_in_order(self, rows: Any) -> tuple[Any, Any]:
        """Returns the indices that sort rows by their elements, and where the next row differs from the one before."""
        count, *others = type_of(rows).shape
        flat = self.reshape(rows, (count, math.prod(others)))
        if 0 in type_of(flat).shape:
            return np.arange(count), np.arange(count) < 1
        order_of = self.call("lexsort", self.flip(self.transpose(flat), 0))
        ascending = self.take(flat, order_of, 0)
        differs = self.any(self.not_equal(ascending[1:], ascending[:-1]), 1)
        return order_of, self.concatenate([np.ones(1, np.bool_), differs])

    def _is_first(self, ascending: Any, *, equal_nan: bool) -> Any:
        """Returns where the elements of an array in ascending order differ from the one before."""
        if not ascending.shape[0]:
            return self.not_equal(ascending, ascending)
        later, earlier = ascending[1:], ascending[:-1]
        differs = self.not_equal(later, earlier)
        if equal_nan and ascending.dtype.kind not in "biu":
            differs = self.logical_and(
                differs, self.logical_not(self.logical_and(self.isnan(later), self.isnan(earlier)))
            )
        return self.concatenate([np.ones(1, np.bool_), differs])


def _rounded(count: int, most: int) -> int:
    """Returns a number rounded up to one of 8 lengths a doubling, 64 at least unless ``most`` is less; 0 for 0."""
    step = max(_LEAST, 1 << max(count - 1, 0).bit_length() >> 4)
    return min(-(-count // step) * step, most)


def _first(array: Any, count: int, axis: int = 0) -> Any:
    """Returns the first rows of an array along an axis."""
    if array.shape[axis] == count:
        return array
    return array[(*(slice(None),) * (axis % array.ndim), slice(count))]

"""Functions whose results have as many elements as a condition is true for.

They wait for the number of these, and then run without waiting.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from shardcall._src.device_arrays.array_version import MAX_PADDED_BYTES
from shardcall._src.device_arrays.bucketed_array import Bucket, BucketedArray, capacity, with_padding, without_padding
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.methods import KernelMethods
from shardcall.namespace.arithmetic import count_nonzero
from shardcall.namespace.base import NamespaceBase, counted_axis, type_of
from shardcall.namespace.creation import asarray
from shardcall.namespace.shapes import moveaxis


def flatnonzero(xp: NamespaceBase, a: OperandLike) -> Any:
    """Returns the indices of the elements of the flattened array that are not zero, as ``numpy.flatnonzero``."""
    indices, count = _padded_indices(xp, a)
    return _first(indices, count)


def nonzero(xp: NamespaceBase, a: OperandLike) -> tuple[Any, ...]:
    """Returns the indices of the elements that are not zero, one array for each axis, as ``numpy.nonzero``.

    Raises:
        ValueError: for an array of no axes.
    """
    shape = type_of(a).shape
    if not shape:
        raise ValueError("nonzero of an array of no axes is not defined; use atleast_1d, or reshape it to (1,)")
    (rest, count), indices = _padded_indices(xp, a), list[Any]()
    for size in reversed(shape[1:]):
        indices.append(xp.remainder(rest, max(size, 1)))
        rest = xp.floor_divide(rest, max(size, 1))
    return tuple(_first(indices_of_axis, count) for indices_of_axis in (rest, *reversed(indices)))


def argwhere(xp: NamespaceBase, a: OperandLike) -> Any:
    """Returns the indices of the elements that are not zero, a row for each, as ``numpy.argwhere``."""
    if not type_of(a).ndim:
        return argwhere(xp, xp.reshape(a, (1,)))[:, :0]
    return xp.stack(nonzero(xp, a), axis=1)


def where(  # with NumPy's form of one argument
    xp: NamespaceBase,
    condition: OperandLike,
    x: OperandLike | None = None,
    y: OperandLike | None = None,
    **options: Any,
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
        return nonzero(xp, condition)
    if x is None or y is None:
        raise ValueError("where takes both x and y, or neither")
    return KernelMethods.where(xp, condition, x, y, **options)


def compress(xp: NamespaceBase, condition: OperandLike, a: OperandLike, axis: int | None = None) -> Any:
    """Returns the elements along an axis for which a condition of one axis is true, as ``numpy.compress``.

    Raises:
        ValueError: for a condition of more axes.
    """
    if type_of(condition).ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return chosen(xp, a, condition, axis)


def extract(xp: NamespaceBase, condition: OperandLike, arr: OperandLike) -> Any:
    """Returns the elements of the flattened array for which a condition is true, as ``numpy.extract``."""
    return chosen(xp, arr, condition, None)


def trim_zeros(xp: NamespaceBase, filt: OperandLike, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Any:
    """Returns an array without the slices of zeros before and behind all others along axes, as ``numpy.trim_zeros``.

    Args:
        filt: [...] the array.
        trim: ``"f"`` to leave out those before, ``"b"`` those behind, ``"fb"`` both.
        axis: the axes; None for all.

    Raises:
        ValueError: for another ``trim``.
    """
    x, where_from = asarray(xp, filt), trim.lower()
    if where_from not in ("f", "b", "fb", "bf"):
        raise ValueError(f"trim={trim!r}; give 'f', 'b' or 'fb'")
    ndim = x.ndim
    axes = tuple(range(ndim)) if axis is None else normalize_axis_tuple(axis, ndim, argname="axis")
    if not axes:
        return x
    ranges = _ranges_of_nonzeros(xp, x, axes)
    key = [slice(None)] * ndim
    for i, (start, stop) in zip(axes, ranges, strict=True):
        if start == stop:
            key[i] = slice(0)
        else:
            key[i] = slice(start if "f" in where_from else None, stop if "b" in where_from else None)
    return x[tuple(key)]


def chosen(xp: NamespaceBase, x: OperandLike, condition: OperandLike, axis: int | None) -> Any:
    """Returns the elements along an axis for which a condition is true; of the flattened array for None."""
    if find_remote_array(condition) is None:
        return xp.take(x, np.flatnonzero(np.asarray(condition)), axis)
    shape, dtype = (described := type_of(x)).shape, described.dtype
    row_bytes = dtype.itemsize * (1 if axis is None else math.prod(shape) // max(shape[axis], 1))
    indices, count = _padded_indices(xp, condition, row_bytes)
    array = find_remote_array(x)
    padded = None if array is None or (axis is None and array.ndim > 1) else with_padding(array)
    if padded is not None and padded.bucket.axis == (axis or 0) % len(shape):  # no index is one of its padding
        x = padded.padded
    return _first(xp.take(x, indices, axis), count, axis or 0)


def _ranges_of_nonzeros(xp: NamespaceBase, x: Any, axes: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the range of indices along each axis within which all elements are that are not zero."""
    if 0 in x.shape:
        return [(0, 0)] * len(axes)
    occupied, numbers = xp.not_equal(x, 0), list[Any]()
    for axis in axes:
        others = tuple(i for i in range(x.ndim) if i != axis)
        along = xp.any(occupied, others) if others else occupied
        numbers += [xp.argmax(along), xp.argmax(xp.flip(along))]
    count, *ends = xp.stack([xp.sum(occupied), *numbers]).get().tolist()
    if not count:
        return [(0, 0)] * len(axes)
    return [(ends[2 * i], x.shape[axis] - ends[2 * i + 1]) for i, axis in enumerate(axes)]


def _padded_indices(xp: NamespaceBase, condition: OperandLike, item_bytes: int = 8) -> tuple[Any, int]:
    """Returns the indices for which a condition is true, then zeros, and the number of the indices.

    The programs that find and take elements are compiled once for all numbers that have the same `capacity`.
    """
    array = find_remote_array(condition)
    padded = None if array is None or array.ndim != 1 else with_padding(array)
    max_count = math.prod((type_of(condition) if padded is None else padded.padded.type).shape)
    if array is None or array._store.name:
        count = int(count_nonzero(xp, condition))
        return xp.call("flatnonzero", condition, size=capacity(count, max_count, item_bytes)), count
    base, steps = array._located
    version, kept = base.version, array._nonzeros
    if kept is not None and kept[0] is version and kept[1] == steps and not version.lost:
        count, indices = kept[2:]
    else:
        count, indices = int(count_nonzero(xp, condition)), None
    size = capacity(count, max_count, item_bytes)
    if indices is None or indices.shape[0] != size:
        indices = xp.call("flatnonzero", condition, size=size)
    if indices.nbytes <= MAX_PADDED_BYTES and base.version is version:
        array._nonzeros = version, steps, count, indices
    return copy.copy(indices), count


def unique(
    xp: NamespaceBase,
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
    del sorted
    shape = type_of(ar).shape
    if axis is None or len(shape) == 1:
        counted_axis(0 if axis is None else axis, max(len(shape), 1))
        rows = xp.reshape(ar, -1)
        needs_indices = return_index or return_inverse
        order_of: Any = xp.argsort(rows) if needs_indices else None
        ascending = xp.take(rows, order_of) if needs_indices else xp.sort(rows)
        is_first = _is_first(xp, ascending, equal_nan=equal_nan)
    else:
        rows = moveaxis(xp, ar, axis, 0)
        shape = type_of(rows).shape[:1]
        order_of, is_first = _rows_in_order(xp, rows)
        ascending = xp.take(rows, order_of, 0)
    firsts, count = _padded_indices(xp, is_first)
    results = [_first(xp.take(ascending, firsts, 0), count)]
    if axis:
        results[0] = moveaxis(xp, results[0], 0, axis)
    if return_index:
        results.append(_first(xp.take(order_of, firsts), count))
    if return_inverse:
        numbers = xp.subtract(xp.cumsum(is_first, dtype=np.int64), 1)
        results.append(xp.reshape(xp.take(numbers, xp.argsort(order_of)), shape))
    if return_counts:
        results.append(xp.diff(_first(firsts, count), append=np.int64(type_of(rows).shape[0])))
    return results[0] if len(results) == 1 else tuple(results)


def _rows_in_order(xp: NamespaceBase, rows: Any) -> tuple[Any, Any]:
    """Returns the indices that sort rows by their elements, and where the next row differs from the one before."""
    count, *others = type_of(rows).shape
    flat = xp.reshape(rows, (count, math.prod(others)))
    if 0 in type_of(flat).shape:
        return np.arange(count), np.arange(count) < 1
    order_of = xp.call("lexsort", xp.flip(xp.transpose(flat), 0))
    ascending = xp.take(flat, order_of, 0)
    differs = xp.any(xp.not_equal(ascending[1:], ascending[:-1]), 1)
    return order_of, xp.concatenate([np.ones(1, np.bool_), differs])


def _is_first(xp: NamespaceBase, ascending: Any, *, equal_nan: bool) -> Any:
    """Returns where the elements of an array in ascending order differ from the one before."""
    if not ascending.shape[0]:
        return xp.not_equal(ascending, ascending)
    later, earlier = ascending[1:], ascending[:-1]
    differs = xp.not_equal(later, earlier)
    if equal_nan and ascending.dtype.kind not in "biu":
        differs = xp.logical_and(differs, xp.logical_not(xp.logical_and(xp.isnan(later), xp.isnan(earlier))))
    return xp.concatenate([np.ones(1, np.bool_), differs])


def _first(array: Any, count: int, axis: int = 0) -> Any:
    """Returns the first rows of an array along an axis, of whose other elements nobody else knows."""
    axis %= array.ndim
    return without_padding(BucketedArray(array, Bucket(axis, count, array.shape[axis])))

"""Functions that choose, leave out and add elements: select, delete, insert, append, partition, diag."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.namespace.base import (
    NamespaceBase,
    array_of,
    check_indices,
    converted,
    copied,
    counted_axis,
    namespace_of,
    part_of,
    type_of,
    value_of,
    weak_type,
    with_axis,
)
from shardcall.namespace.creation import zeros
from shardcall.namespace.index_keys import as_values, without_leading
from shardcall.namespace.indexing import getitem
from shardcall.namespace.integers import integer
from shardcall.namespace.positions import MAX_COUNT


def isin(
    xp: NamespaceBase,
    element: OperandLike,
    test_elements: OperandLike,
    assume_unique: bool = False,
    invert: bool = False,
) -> Any:
    """Returns where the elements of an array are among others, as ``numpy.isin``.

    Args:
        element: [...] the array.
        test_elements: [...] the others.
        assume_unique: accepted as NumPy does; the result is the same.
        invert: whether to return where they are not.
    """
    del assume_unique
    type_of(element, "element")
    count = math.prod(type_of(test_elements, "test_elements").shape)
    if not count:
        return xp.logical_or(element, True) if invert else xp.logical_and(element, False)
    of_tests = namespace_of(xp, test_elements)
    ascending = of_tests.sort(of_tests.reshape(test_elements, -1))
    positions = xp.minimum(xp.searchsorted(ascending, element), count - 1)
    compare = xp.not_equal if invert else xp.equal
    return compare(xp.take(ascending, positions), element)


def select(
    xp: NamespaceBase, condlist: Sequence[OperandLike], choicelist: Sequence[OperandLike], default: OperandLike = 0
) -> Any:
    """Returns elements of the first of several arrays whose condition is true, as ``numpy.select``.

    Args:
        condlist: the conditions, of bool.
        choicelist: an array for each condition.
        default: the elements for which no condition is true.

    Raises:
        ValueError: for no conditions, and for another number of arrays.
        TypeError: for conditions of another element type.
    """
    if not condlist or len(condlist) != len(choicelist):
        raise ValueError(f"{len(condlist)} conditions and {len(choicelist)} arrays; give an array for each, or more")
    for i, condition in enumerate(condlist):
        if type_of(condition).dtype != np.bool_:
            raise TypeError(f"condlist[{i}] is of {type_of(condition).dtype.name}; give conditions of bool")
    dtype = np.result_type(*map(weak_type, (*choicelist, default)))
    for i, array in enumerate(choicelist):  # numbers, which NumPy does not convert to unsigned integers
        if not np.can_cast(array_dtype := type_of(array).dtype, dtype, "same_kind"):
            raise TypeError(
                f"choicelist[{i}] is of {array_dtype.name} and the result of {dtype.name}; convert one of them"
            )
    result = converted(xp, default, dtype)
    for condition, array in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = xp.where(condition, converted(xp, array, dtype), result)
    return result


def put_along_axis(
    xp: NamespaceBase, arr: OperandLike, indices: OperandLike, values: OperandLike, axis: int | None
) -> None:
    """Makes an array on the mesh stand for one with other elements, as ``numpy.put_along_axis``.

    Args:
        arr: [..., size, ...] the array on the mesh.
        indices: [..., count, ...] the indices along the axis; of equal ones the last counts.
        values: the elements, which broadcast to the indices.
        axis: the axis; None for the flattened array and indices of one axis.

    Raises:
        TypeError: for an array of this process.
        ValueError: for indices of several axes without an axis.
        IndexError: for indices of this process that there are not; of those on the mesh when the array is read.
    """
    array = find_remote_array(arr)
    if array is None:
        raise TypeError("arr is of this process; call numpy.put_along_axis, with indices of this process")
    if axis is None and type_of(indices).ndim != 1:
        raise ValueError(f"indices is of shape {type_of(indices).shape} and axis=None; give a single dimension")
    with array._writing():
        _put_along_axis(xp, array, indices, values, axis)


def _put_along_axis(xp: NamespaceBase, array: Any, indices: OperandLike, values: OperandLike, axis: Any) -> None:
    x, along = _flat_without(xp, array, axis)
    check_indices(indices)
    size, here = x.shape[along], indices
    if find_remote_array(indices) is None:
        here = np.asarray(indices)
        if (wrong := here[(here < -size) | (here >= size)]).size:
            raise IndexError(f"index {wrong[0]} is out of bounds for axis {along} with size {size}")
    sizes = zip(type_of(here).shape, x.shape, strict=False)
    if type_of(here).ndim == x.ndim and any(count > n == 1 for i, (count, n) in enumerate(sizes) if i != along):
        rows = np.ogrid[tuple(map(slice, x.shape))]
        result = xp.setitem(x, (*rows[:along], here, *rows[along + 1 :]), values)  # type: ignore[attr-defined]
    else:
        new: Any = as_values(values, x.dtype)
        new = namespace_of(xp, new).reshape(new, without_leading(new, x.ndim))
        result = xp.call("put_along_axis", x, new, here, axis=along)
    array._assign(result if result.shape == array.shape else xp.reshape(result, array.shape))


def lexsort(xp: NamespaceBase, keys: Any, axis: SupportsIndex = -1) -> Any:
    """Returns the indices that sort by several keys, of which the last counts most, as ``numpy.lexsort``."""
    if isinstance(keys, list | tuple) and len({type_of(key).dtype for key in keys}) > 1:
        return _sorted_by_keys(xp, keys, integer("axis", axis))
    x = xp.stack(keys) if isinstance(keys, list | tuple) else array_of(keys)
    if (ndim := type_of(x).ndim) == 1:  # keys of no axes
        counted_axis(axis, 1)
        return lexsort(xp, namespace_of(xp, x).reshape(x, (-1, 1)))[0]
    return xp.call("lexsort", x, axis=counted_axis(axis, ndim - 1))


def _sorted_by_keys(xp: NamespaceBase, keys: Sequence[OperandLike], axis: int) -> Any:
    """Returns the indices that sort by keys of several types, whose elements may become equal in a common type."""
    if len(shapes := {type_of(key).shape for key in keys}) > 1:
        raise ValueError(f"the keys are of shapes {', '.join(map(str, shapes))}; give keys of one shape")
    first, *others = (with_axis(xp, key, axis) for key in keys)
    result = xp.argsort(first, axis)
    for key in others:
        result = xp.take_along_axis(result, xp.argsort(xp.take_along_axis(key, result, axis), axis), axis)
    return result if type_of(keys[0]).ndim else result[0]


def append(xp: NamespaceBase, arr: OperandLike, values: OperandLike, axis: int | None = None) -> Any:
    """Returns an array with others behind it, both flattened without an axis, as ``numpy.append``."""
    return xp.concatenate([array_of(arr), array_of(values)], axis)


def delete(xp: NamespaceBase, arr: OperandLike, obj: Any, axis: SupportsIndex | None = None) -> Any:
    """Returns an array without some elements, as ``numpy.delete``; copies indices on the mesh.

    Args:
        arr: [...] the array.
        obj: an index, indices, a slice or a mask of what is left out.
        axis: the axis; None for the flattened array.

    Raises:
        IndexError: for indices that there are not.
    """
    x, along = _flat_without(xp, arr, axis)
    size = type_of(x).shape[along]
    kept = np.delete(np.arange(size), value_of(obj))
    before = (slice(None),) * along
    if len(kept) == size:
        return xp.copy(x)
    behind = size - len(kept)
    first = int(np.argmax(np.append(kept, size) != np.arange(len(kept) + 1)))
    if (kept[first:] == np.arange(first + behind, size)).all():  # what is left out is one slice
        parts = [part_of(x, (*before, part)) for part in (slice(first), slice(first + behind, None))]
        return xp.concatenate(parts, along)
    return xp.take(x, kept, along)


def insert(
    xp: NamespaceBase, arr: OperandLike, obj: Any, values: OperandLike, axis: SupportsIndex | None = None
) -> Any:
    """Returns an array with values before some indices, as ``numpy.insert``; copies indices on the mesh.

    Args:
        arr: [...] the array.
        obj: an index, indices, a slice or a mask: what the values are put before.
        values: what is inserted; it broadcasts to the shape of the array with as many rows as there are indices,
            and is converted to the element type of the array.
        axis: the axis; None for the flattened array.

    Raises:
        IndexError: for indices that there are not.
    """
    x, along = _flat_without(xp, arr, axis)
    shape, dtype = type_of(x).shape, type_of(x).dtype
    size, here = shape[along], value_of(obj)
    indices = np.arange(size)[here] if isinstance(here, slice) else np.asarray(here)
    new: Any = as_values(values, dtype)
    new = new if new.dtype == dtype else xp.astype(new, dtype)
    count = indices.sum() if indices.dtype == np.bool_ else indices.size
    if count == 1:
        new = namespace_of(xp, new).reshape(new, (1,) * (len(shape) - new.ndim) + new.shape)
        new = namespace_of(xp, new).moveaxis(new, 0, along) if not indices.ndim else new
        count = new.shape[along]
        here = (
            indices
            if not indices.ndim
            else int(np.flatnonzero(indices)[0] if indices.dtype == np.bool_ else indices[0])
        )
    sources = np.insert(np.arange(size), here, np.arange(size, size + count))
    new = namespace_of(xp, new).reshape(new, without_leading(new, len(shape)))
    rows = namespace_of(xp, new).broadcast_to(new, (*shape[:along], count, *shape[along + 1 :]))
    return xp.take(xp.concatenate([x, rows], along), sources, along)


def resize(xp: NamespaceBase, a: OperandLike, new_shape: SupportsIndex | Sequence[SupportsIndex]) -> Any:
    """Returns the elements in another shape, cut off or repeated from the first one on, as ``numpy.resize``.

    Of an array without elements the result has zeros.

    Raises:
        ValueError: for negative sizes.
    """
    sizes = tuple(map(operator.index, new_shape if np.ndim(new_shape) else (new_shape,)))  # type: ignore[arg-type]
    if any(size < 0 for size in sizes):
        raise ValueError(f"new_shape={sizes}; give sizes of 0 or more")
    flat, count, size = xp.reshape(a, -1), math.prod(sizes), math.prod(type_of(a).shape)
    if not size and count:
        return zeros(xp, sizes, dtype=type_of(a).dtype)
    flat = xp.tile(flat, -(-count // size)) if count > size else flat
    return copied(xp.reshape(getitem(xp, flat, slice(count)), sizes))


def diag(xp: NamespaceBase, v: OperandLike, k: int = 0) -> Any:
    """Returns the diagonal of a matrix, or the matrix with a diagonal, as ``numpy.diag``.

    Args:
        v: [M, N] a matrix, or [N] a diagonal.
        k: which diagonal; positive ones are above the main one.

    Raises:
        ValueError: for other numbers of axes.
    """
    shape = type_of(v).shape
    if len(shape) == 2:
        return xp.diagonal(v, k)
    if len(shape) != 1:
        raise ValueError(f"v has {len(shape)} axes; give a matrix, or a diagonal of one axis")
    rows = xp.pad(v, (max(-k, 0), max(k, 0))) if k else v
    size = shape[0] + abs(k)
    return xp.triu(xp.tril(xp.broadcast_to(xp.reshape(rows, (-1, 1)), (size, size)), k), k)


def diagflat(xp: NamespaceBase, v: OperandLike, k: int = 0) -> Any:
    """Returns the matrix with the elements of an array on a diagonal, as ``numpy.diagflat``."""
    return diag(xp, xp.reshape(v, -1), k)


def unravel_index(
    xp: NamespaceBase, indices: OperandLike, shape: SupportsIndex | Sequence[SupportsIndex]
) -> tuple[Any, ...]:
    """Returns the index along each axis of elements of the flattened array, as ``numpy.unravel_index``.

    It waits to see that all are within the shape.

    Raises:
        ValueError: for an index that there is not, several of an array without axes, and more elements than an int64
            counts.
        TypeError: for indices that are not integers.
    """
    sizes = tuple(map(operator.index, shape if isinstance(shape, Sequence) else (shape,)))
    rest: Any = indices if find_remote_array(indices) is not None else np.asarray(indices)
    if rest.dtype.kind not in "biu":
        raise TypeError(f"indices is of {rest.dtype.name}; give integers")
    rest = xp.astype(rest, np.int64) if rest.dtype.kind == "b" else rest
    count = math.prod(sizes)
    if count > MAX_COUNT:
        raise ValueError(f"an array of shape {sizes} has more elements than an int64 counts; give up to {MAX_COUNT}")
    if not sizes and rest.ndim:
        raise ValueError(f"indices is of shape {rest.shape}, of an array without axes; give one index, 0")
    if 0 not in rest.shape and bool(xp.any(xp.logical_or(xp.less(rest, 0), xp.greater_equal(rest, count)))):
        raise ValueError(f"indices has an index that an array of shape {sizes} does not have; give 0 to {count - 1}")
    others = list[Any]()
    for size in reversed(sizes[1:]):
        others.append(xp.remainder(rest, max(size, 1)))
        rest = xp.floor_divide(rest, max(size, 1))
    return (
        (xp.astype(rest, np.int64), *(xp.astype(coordinates, np.int64) for coordinates in reversed(others)))
        if sizes
        else ()
    )


def partition(xp: NamespaceBase, a: OperandLike, kth: Any, axis: int | None = -1) -> Any:
    """Returns an array whose element kth is that of the sorted one, as ``numpy.partition``: all are sorted.

    Raises:
        ValueError: for an index kth that there is not.
    """
    _check_kth(a, kth, axis)
    return xp.sort(a, axis)


def argpartition(xp: NamespaceBase, a: OperandLike, kth: Any, axis: int | None = -1) -> Any:
    """Returns indices of which that at kth is the sorted array's, as ``numpy.argpartition``: all are sorted.

    Raises:
        ValueError: for an index kth that there is not.
    """
    a = with_axis(xp, a, axis)
    _check_kth(a, kth, axis)
    return xp.argsort(a, axis)


def _check_kth(a: OperandLike, kth: Any, axis: int | None) -> None:
    shape = type_of(a).shape
    size = math.prod(shape) if axis is None else shape[counted_axis(axis, len(shape))]
    indices = np.asarray(value_of(kth))
    if indices.dtype.kind == "b":
        raise ValueError("kth is of bool; give integers")
    for index in map(operator.index, indices.ravel().tolist()):
        if 0 not in shape and not -size <= index < size:
            raise ValueError(f"kth(={index}) out of bounds ({size}); give {-size} to {size - 1}")


def _flat_without(xp: NamespaceBase, x: OperandLike, axis: SupportsIndex | None) -> tuple[Any, int]:
    """Returns an array, flattened without an axis, and the axis counted from the first."""
    if axis is None:
        return namespace_of(xp, x).reshape(x, -1), 0
    along = counted_axis(axis, type_of(x).ndim)
    return (x if find_remote_array(x) is not None else np.asarray(x)), along

"""Elements that indices choose among arrays (choose), indices of several axes (ix_), arrays of blocks (block)."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import (
    NamespaceBase,
    array_of,
    converted,
    copied,
    namespace_of,
    part_of,
    type_of,
    weak_type,
)
from shardcall.namespace.ranges import arange
from shardcall.namespace.searching import nonzero

MAX_SELECTED = 32
"""The most arrays among which elements are selected one array after the other; of more they are taken."""

MAX_COUNT = 2**63 - 1
"""The most elements of an array that indices count."""

_MODES = ("raise", "wrap", "clip")


def choose(xp: NamespaceBase, a: OperandLike, choices: Any, mode: str = "raise") -> Any:
    """Returns elements of several arrays, of each that which an index names, as ``numpy.choose``.

    It waits to see that all indices are of an array, but for the modes ``"wrap"`` and ``"clip"``.

    Args:
        a: [...] the indices.
        choices: the arrays, which broadcast with the indices; or one array, with an axis before theirs.
        mode: what an index is replaced by that there is none for: ``"raise"`` for an error, ``"wrap"`` or ``"clip"``.

    Raises:
        ValueError: for an index without an array.
        TypeError: for indices that are not integers.
    """
    arrays = [*choices] if isinstance(choices, Sequence) else [part_of(choices, i) for i in range(_length(choices))]
    if not arrays:
        raise ValueError("choices is empty; give one array or more")
    index = _integers(a, "a")
    shape = np.broadcast_shapes(index.shape, *(type_of(item).shape for item in arrays))
    is_unused = 0 in shape and mode == "raise"  # no index of a result without elements is looked at
    index = _within(xp, index, len(arrays), "clip" if is_unused else mode, "a")
    dtype = np.result_type(*map(weak_type, arrays))
    arrays = [converted(xp, item, dtype) for item in arrays]
    if len(arrays) > MAX_SELECTED:
        rows = xp.stack([xp.broadcast_to(item, shape) for item in arrays])
        result = xp.take_along_axis(rows, xp.reshape(xp.broadcast_to(index, shape), (1, *shape)), 0)
        return xp.reshape(result, shape)
    result = arrays[-1]
    for i in reversed(range(len(arrays) - 1)):
        result = xp.where(namespace_of(xp, index).equal(index, i), arrays[i], result)
    return copied(xp.broadcast_to(result, shape))


def ravel_multi_index(xp: NamespaceBase, multi_index: Any, dims: Any, mode: Any = "raise") -> Any:
    """Returns the indices in the flattened array of elements, as ``numpy.ravel_multi_index``.

    It waits to see that all are within the shape, but for the modes ``"wrap"`` and ``"clip"``.

    Args:
        multi_index: the indices along each axis; or one array, with an axis before theirs.
        dims: the shape of the array.
        mode: what an index is replaced by that an axis does not have: ``"raise"`` for an error, ``"wrap"`` or
            ``"clip"``; or one for each axis.

    Raises:
        ValueError: for an index that there is not, other numbers of indices, and more elements than an int64 counts.
        TypeError: for indices that are not integers.
    """
    sizes = tuple(map(operator.index, dims if isinstance(dims, Sequence | np.ndarray) else (dims,)))
    if isinstance(multi_index, tuple | list):
        parts = [*multi_index]
    else:
        parts = [part_of(multi_index, i) for i in range(_length(multi_index))]
    modes = [mode] * len(sizes) if isinstance(mode, str) else [*mode]
    if len(parts) != len(sizes) or len(modes) != len(sizes):
        raise ValueError(f"{len(parts)} arrays of indices, {len(modes)} modes and {len(sizes)} axes; give one for each")
    if math.prod(sizes) > MAX_COUNT:
        raise ValueError(f"dims={sizes} has more elements than an int64 counts; give up to {MAX_COUNT}")
    if 0 in sizes and parts and 0 not in np.broadcast_shapes(*(type_of(part).shape for part in parts)):
        raise ValueError(f"dims={sizes} has no elements, and there are indices; give none")
    total: Any = 0
    for i, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        index = _within(xp, _integers(part, f"multi_index[{i}]"), size, modes[i], f"multi_index[{i}]")
        total = xp.add(total, xp.multiply(index, math.prod(sizes[i + 1 :])))
    return total


def diag_indices_from(xp: NamespaceBase, arr: OperandLike) -> tuple[Any, ...]:
    """Returns the indices of the main diagonal of an array, one array for each axis, as ``numpy.diag_indices_from``.

    Raises:
        ValueError: for an array of one axis, and for axes of different sizes.
    """
    shape = type_of(arr).shape
    if len(shape) < 2:
        raise ValueError(f"arr has {len(shape)} axes; give two or more")
    if len({*shape}) > 1:
        raise ValueError(f"arr is of shape {shape}; give axes of one size")
    return (arange(xp, shape[0]),) * len(shape)


def ix_(xp: NamespaceBase, *args: OperandLike) -> tuple[Any, ...]:
    """Returns the indices of all combinations of indices of several axes, as ``numpy.ix_``.

    Args:
        args: [n] the indices of each axis, or a mask of it, for whose number of elements it waits.

    Raises:
        ValueError: for arrays of other numbers of axes.
    """
    results = list[Any]()
    for i, item in enumerate(args):
        array = array_of(item)
        if array.ndim != 1:
            raise ValueError(f"args[{i}] is of shape {array.shape}; give an array of one axis")
        if array.dtype.kind == "b":
            (array,) = nonzero(xp, array)
        elif not array.shape[0] and array is not item:  # an empty list is of no type
            array = converted(xp, array, np.dtype(np.int64))
        results.append(xp.reshape(array, [array.shape[0] if j == i else 1 for j in range(len(args))]))
    return tuple(results)


def block(xp: NamespaceBase, arrays: Any) -> Any:
    """Returns an array of blocks, given by nested lists, as ``numpy.block``: the innermost ones along the last axis.

    Raises:
        TypeError: for a tuple in place of a list.
        ValueError: for an empty list, and lists of different depths.
    """
    depth, ndim = _depth(arrays, "arrays"), 0
    leaves = [arrays]
    for _ in range(depth):
        leaves = [item for row in leaves for item in row]
    ndim = max(depth, *(type_of(item).ndim for item in leaves))

    def joined(part: Any, level: int) -> Any:
        if level == depth:
            array = array_of(part)
            return namespace_of(xp, array).reshape(array, (1,) * (ndim - type_of(array).ndim) + type_of(array).shape)
        return xp.concatenate([joined(item, level + 1) for item in part], ndim - depth + level)

    result = joined(arrays, 0)
    return xp.copy(result) if not depth else result


def _depth(part: Any, path: str) -> int:
    """Returns how deep lists are nested.

    Raises:
        TypeError: for a tuple.
        ValueError: for an empty list, and for lists of different depths.
    """
    if isinstance(part, tuple):
        raise TypeError(f"{path} is a tuple; give lists of blocks")
    if not isinstance(part, list):
        return 0
    if not part:
        raise ValueError(f"{path} is an empty list; give one block or more")
    depths = [_depth(item, f"{path}[{i}]") for i, item in enumerate(part)]
    if len({*depths}) > 1:
        raise ValueError(f"{path} has lists of depths {depths}; give lists of one depth")
    return depths[0] + 1


def _integers(index: Any, name: str) -> Any:
    array = array_of(index)
    if array.dtype.kind not in "biu":
        raise TypeError(f"{name} is of {array.dtype.name}; give integers")
    return array


def _within(xp: NamespaceBase, index: Any, size: int, mode: str, name: str) -> Any:
    """Returns indices of an axis, int64, in place of those that there are not.

    Raises:
        ValueError: for indices that there are not, in the mode ``"raise"``, and another mode.
    """
    if mode not in _MODES:
        raise ValueError(f"mode={mode!r}; give 'raise', 'wrap' or 'clip'")
    of_index = namespace_of(xp, index)
    if mode == "raise":
        wrong = of_index.any(of_index.logical_or(of_index.less(index, 0), of_index.greater_equal(index, size)))
        if bool(wrong):
            raise ValueError(f"{name} has an index that {size} elements do not have; give 0 to {size - 1}")
        return of_index.astype(index, np.int64)
    index = of_index.astype(index, np.int64)
    return of_index.remainder(index, size) if mode == "wrap" else of_index.clip(index, 0, size - 1)


def _length(array: Any) -> int:
    shape: tuple[int, ...] = type_of(array).shape
    if not shape:
        raise ValueError("an array without axes; give one with an axis of arrays")
    return shape[0]

"""Unions, intersections and differences of the elements of two arrays, which wait for the numbers of elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, array_of, part_of, type_of
from shardcall.namespace.searching import chosen, unique
from shardcall.namespace.selection import isin


def union1d(xp: NamespaceBase, ar1: OperandLike, ar2: OperandLike) -> Any:
    """Returns the elements of either of two arrays, in ascending order, as ``numpy.union1d``."""
    return unique(xp, xp.concatenate([ar1, ar2], None))


def intersect1d(
    xp: NamespaceBase, ar1: OperandLike, ar2: OperandLike, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """Returns the elements of both of two arrays, in ascending order, as ``numpy.intersect1d``.

    Args:
        ar1: [...] the first array.
        ar2: [...] the second array.
        assume_unique: whether no array has two equal elements.
        return_indices: whether to return the index of the first of each in either flattened array, too.
    """
    firsts: list[Any] = []
    if assume_unique:
        parts = [xp.reshape(array_of(item), -1) for item in (ar1, ar2)]
    elif return_indices:
        result = [unique(xp, item, True) for item in (ar1, ar2)]
        parts, firsts = [item[0] for item in result], [item[1] for item in result]
    else:
        parts = [unique(xp, item) for item in (ar1, ar2)]
    (size,), (other,) = (type_of(part).shape for part in parts)
    joined = xp.concatenate(parts)
    if size + other < 2:
        nothing = xp.copy(np.zeros(0, np.int64))
        return (joined[:0], nothing, nothing) if return_indices else joined[:0]
    permutation: Any = xp.argsort(joined) if return_indices else None
    ascending = xp.take(joined, permutation) if return_indices else xp.sort(joined)
    is_common = xp.equal(ascending[1:], ascending[:-1])
    common = chosen(xp, ascending[:-1], is_common, 0)
    if not return_indices:
        return common
    indices = chosen(xp, permutation[:-1], is_common, 0), xp.subtract(chosen(xp, permutation[1:], is_common, 0), size)
    if firsts:
        indices = xp.take(firsts[0], indices[0]), xp.take(firsts[1], indices[1])
    return common, *indices


def setdiff1d(xp: NamespaceBase, ar1: OperandLike, ar2: OperandLike, assume_unique: bool = False) -> Any:
    """Returns the elements of an array that another does not have, as ``numpy.setdiff1d``.

    Args:
        ar1: [...] the array.
        ar2: [...] the other array.
        assume_unique: True to keep equal elements, and their sequence; else the result is in ascending order.
    """
    x = xp.reshape(array_of(ar1), -1) if assume_unique else unique(xp, ar1)
    return chosen(xp, x, isin(xp, x, ar2, invert=True), 0)


def setxor1d(xp: NamespaceBase, ar1: OperandLike, ar2: OperandLike, assume_unique: bool = False) -> Any:
    """Returns the elements of exactly one of two arrays, in ascending order, as ``numpy.setxor1d``.

    Args:
        ar1: [...] the first array.
        ar2: [...] the second array.
        assume_unique: whether no array has two equal elements.
    """
    parts = [array_of(item) if assume_unique else unique(xp, item) for item in (ar1, ar2)]
    joined = xp.concatenate(parts, None if assume_unique else 0)
    if not type_of(joined).shape[0]:
        return joined
    ascending, edge = xp.sort(joined), np.ones(1, np.bool_)
    differs = xp.concatenate([edge, xp.not_equal(ascending[1:], ascending[:-1]), edge])
    return chosen(xp, ascending, xp.logical_and(differs[1:], part_of(differs, slice(-1))), 0)

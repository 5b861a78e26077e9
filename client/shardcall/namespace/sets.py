"""Functions of the elements of an array that differ, with the standard's names.

No NaN equals another. The functions wait for the number of the elements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase
from shardcall.namespace.searching import unique


class UniqueAllResult(NamedTuple):
    """The elements that differ; of each the first index and the number; the index of every element among them."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCountsResult(NamedTuple):
    """The elements that differ, and the number of each."""

    values: Any
    counts: Any


class UniqueInverseResult(NamedTuple):
    """The elements that differ, and the index of every element among them."""

    values: Any
    inverse_indices: Any


def unique_all(xp: NamespaceBase, x: OperandLike) -> UniqueAllResult:
    """Returns the elements that differ with all that is known of them, as ``numpy.unique_all``."""
    return UniqueAllResult(*unique(xp, x, True, True, True, equal_nan=False))


def unique_counts(xp: NamespaceBase, x: OperandLike) -> UniqueCountsResult:
    """Returns the elements that differ and the number of each, as ``numpy.unique_counts``."""
    return UniqueCountsResult(*unique(xp, x, return_counts=True, equal_nan=False))


def unique_inverse(xp: NamespaceBase, x: OperandLike) -> UniqueInverseResult:
    """Returns the elements that differ and the index of every element, as ``numpy.unique_inverse``."""
    return UniqueInverseResult(*unique(xp, x, return_inverse=True, equal_nan=False))


def unique_values(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns the elements that differ, as ``numpy.unique_values``."""
    return unique(xp, x, equal_nan=False)

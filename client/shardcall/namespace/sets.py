"""Functions of the elements of an array that differ, with the standard's names."""

from __future__ import annotations

from typing import Any, NamedTuple

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.searching import SearchingNamespace


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


class SetNamespace(SearchingNamespace):
    """Elements that differ, where no NaN equals another. These functions wait for their number."""

    def unique_all(self, x: OperandLike) -> UniqueAllResult:
        """Returns the elements that differ with all that is known of them, as ``numpy.unique_all``."""
        return UniqueAllResult(*self.unique(x, True, True, True, equal_nan=False))

    def unique_counts(self, x: OperandLike) -> UniqueCountsResult:
        """Returns the elements that differ and the number of each, as ``numpy.unique_counts``."""
        return UniqueCountsResult(*self.unique(x, return_counts=True, equal_nan=False))

    def unique_inverse(self, x: OperandLike) -> UniqueInverseResult:
        """Returns the elements that differ and the index of every element, as ``numpy.unique_inverse``."""
        return UniqueInverseResult(*self.unique(x, return_inverse=True, equal_nan=False))

    def unique_values(self, x: OperandLike) -> Any:
        """Returns the elements that differ, as ``numpy.unique_values``."""
        return self.unique(x, equal_nan=False)

"""Reproducibility of results, bit by bit, on every mesh.

The promise is for one server: its version, its compiler and its type of device. It holds for every mesh, spec and
strategy that a call may have. All NaN count as equal, since processors do not define the bits of a NaN that arithmetic
returns.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import numpy as np

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.core.element_types import working_type


class Reproducibility(enum.Enum):
    """The calls of a kernel whose results are the same bits on every mesh.

    Attributes:
        ALWAYS: all calls.
        INTEGERS: calls whose operands and results are integers or bool, which add and multiply exactly.
        PER_CALL: some calls, as `Kernel.is_reproducible` decides; the plan reports it.
        NOT_PROMISED: no call.
    """

    ALWAYS = "always"
    INTEGERS = "integers"
    PER_CALL = "per call"
    NOT_PROMISED = "not promised"


def all_integers(arrays: Iterable[ArrayType | None]) -> bool:
    """Returns True if all arrays that are present are of integers or bool."""
    return all(_is_integer(array.dtype) for array in arrays if array is not None)


def all_real(arrays: Iterable[ArrayType | None]) -> bool:
    """Returns True if no array is complex: the compiler does not fuse products of complex parts alike everywhere."""
    return all(array.dtype.kind != "c" for array in arrays if array is not None)


def _is_integer(dtype: np.dtype) -> bool:
    return working_type(dtype).kind in "biu"


def differing_bits(one: np.ndarray, other: np.ndarray) -> int:
    """Counts the elements, or parts of complex ones, whose bits differ in two arrays of one type and shape."""
    if one.dtype.kind == "c":
        one, other = (array.reshape(-1).view(one.real.dtype) for array in (one, other))
    bits = np.dtype(f"u{one.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        both_nan = (one != one) & (other != other)  # noqa: PLR0124
    return int(((one.view(bits) != other.view(bits)) & ~both_nan).sum())

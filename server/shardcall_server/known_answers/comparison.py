"""Comparison of results with known answers.

The tolerances are generous: they distinguish wrongly compiled programs, whose elements are far off, from different
rounding. `docs/accuracy.md` has the errors of correct programs.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from shardcall_server.kernels.core.element_types import is_narrow_float, working_type

_ULPS = 512.0  # of the type in which a function is computed


def wide_type(dtype: np.dtype) -> np.dtype:
    """Returns the type in which the known answers for ``dtype`` are computed, a wider one if the platform has it."""
    if dtype.kind == "b":
        return dtype
    if dtype.kind == "c":
        return np.dtype(np.complex128 if dtype == np.complex64 else np.clongdouble)
    return np.dtype(np.longdouble if dtype == np.float64 else np.float64)


def are_wrong(got: np.ndarray, reference: np.ndarray, largest: np.ndarray, *, signed_zeros: bool = True) -> np.ndarray:
    """Returns True for each element that is wrong.

    Args:
        got: a kernel's result [n].
        reference: the same in a wider type [n].
        largest: the largest magnitude of an operand of each element [n], NaN where an operand is NaN. Where terms of
            that magnitude cancel, it is the measure of the error, and not the result.
        signed_zeros: True to count a zero with the other sign as wrong.
    """
    if got.dtype.kind == "b":
        return np.asarray(got != reference)
    with np.errstate(all="ignore"):
        rounded = reference.astype(got.dtype)
        actual, expected = got.astype(reference.dtype), rounded.astype(reference.dtype)
        size = np.maximum(np.abs(reference), np.minimum(largest, 1.0))
        near = np.abs(actual - reference) <= _relative_tolerance(got.dtype) * size + _absolute_tolerance(got.dtype)
        if got.dtype.kind == "c":
            return np.asarray(~near & np.isfinite(expected))
    both_nan, both_zero = np.isnan(actual) & np.isnan(expected), (actual == 0) & (expected == 0) & signed_zeros
    near = ((actual == expected) | (near & np.isfinite(actual) & np.isfinite(expected))) & ~both_zero
    return np.asarray(~(both_nan | near | (both_zero & (np.signbit(actual) == np.signbit(expected)))))


def _relative_tolerance(dtype: np.dtype) -> float:
    rounding = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    computed = _ULPS * float(np.finfo(working_type(dtype)).eps)
    return computed + rounding if is_narrow_float(dtype) else computed


def _absolute_tolerance(dtype: np.dtype) -> float:
    """Returns the error of arithmetic that flushes subnormals, or rounds to them."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.smallest_subnormal if is_narrow_float(dtype) else info.smallest_normal)

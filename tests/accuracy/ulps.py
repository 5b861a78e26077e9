"""Errors in units in the last place, and the treatment of subnormals, infinities, NaN and the sign of zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from accuracy.points import finfo, is_inexact

_EXAMPLES = 3
_FAR = 16
"""From how many units on a result of a function has lost digits, and is counted as well."""
_ON_EDGE = 2
"""By how many times the worst error elsewhere a result on a branch cut may be wrong before it is another value."""


@dataclass
class Accuracy:
    """Comparison of results with their references.

    Attributes:
        worst: the largest error in units in the last place, subnormals left out; infinite for a wrong integer.
        worst_at: the operands that have it, the result and the reference.
        operands_flushed: whether subnormal operands count as zero.
        results_flushed: whether subnormal results are zero.
        differ: how many NaN, infinities and zeros are not the reference's, in value or sign, and how many results of
            functions are more than 16 units off.
        compared: of how many results.
        differ_at: some of them, as ``worst_at``.
    """

    worst: float = 0.0
    worst_at: str = ""
    operands_flushed: bool = False
    results_flushed: bool = False
    differ: int = 0
    compared: int = 0
    differ_at: tuple[str, ...] = ()

    def __or__(self, other: Accuracy) -> Accuracy:
        """The worse of two results."""
        worse = max(self, other, key=lambda accuracy: accuracy.worst)
        more = max(self, other, key=lambda accuracy: accuracy.differ)
        return Accuracy(
            worse.worst,
            worse.worst_at,
            self.operands_flushed or other.operands_flushed,
            self.results_flushed or other.results_flushed,
            more.differ,
            more.compared,
            more.differ_at,
        )


def spacing(size: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The distance between numbers of a type at a size, in extended precision."""
    info = finfo(dtype)
    with np.errstate(all="ignore"):
        exponent = np.clip(np.frexp(size)[1] - 1, info.minexp, info.maxexp - 1)
    return np.ldexp(np.longdouble(1), exponent - info.nmant)


def errors(actual: np.ndarray, reference: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """The distance in units in the last place of the reference, or of ``scale`` where that is larger.

    The units of a complex number are those of its larger part; a part of 0 in place of a subnormal one is no error.
    Where a result is not finite, there is none.

    Args:
        actual: results, of the type whose units count.
        reference: in extended precision.
        scale: the sizes of the largest terms of sums that cancel.
    """
    with np.errstate(all="ignore"):
        wide = extended(actual)
        size = _size(reference) if scale is None else np.fmax(_size(reference), abs(scale))
        apart = [abs(got - expected) for got, expected in _parts(wide, reference)]
        if actual.dtype.kind == "c":
            apart = [np.where(flushed, 0, d) for d, flushed in zip(apart, _flushed(actual, reference), strict=True)]
        in_units = np.max(apart, axis=0) / spacing(size, actual.dtype)
        finite = np.isfinite(wide) & np.isfinite(extended(_rounded(reference, actual.dtype)))
    return np.where(finite, in_units, 0)


def _parts(*arrays: np.ndarray) -> list[tuple[np.ndarray, ...]]:
    if all(array.dtype.kind != "c" for array in arrays):
        return [arrays]
    return [tuple(array.real for array in arrays), tuple(array.imag for array in arrays)]


def _flushed(actual: np.ndarray, reference: np.ndarray) -> list[np.ndarray]:
    """A mask of elements with a part that is 0 where the reference's is subnormal."""
    smallest_normal = finfo(actual.dtype).tiny
    return [
        (got == 0) & (expected != 0) & (abs(expected) < smallest_normal) for got, expected in _parts(actual, reference)
    ]


def measure(
    actual: np.ndarray, reference: np.ndarray, elements: Sequence[np.ndarray] = (), scale: np.ndarray | None = None
) -> Accuracy:
    """Compares results with their references.

    Args:
        actual: results [n].
        reference: of the same shape, in extended precision or as integers.
        elements: the operands, of the same shape, if a result depends only on elements at its position.
        scale: as of `errors`.
    """
    actual, reference = np.ravel(actual), np.ravel(reference)
    elements, scale = [np.ravel(x) for x in elements], None if scale is None else np.ravel(scale)
    result = Accuracy(compared=actual.size)

    def at(i: int) -> str:
        """An element as the table shows it."""
        operands = ", ".join(str(x[i]) for x in elements)
        return f"({operands}) → {actual[i]}, not {_rounded(reference[i : i + 1], actual.dtype)[0]}"

    if not is_inexact(actual.dtype):
        wrong = actual != reference
        tiny = _any_of(_is_subnormal, elements, actual)
        result.operands_flushed = bool(wrong[tiny].any())
        if (wrong & ~tiny).any():
            result.worst, result.worst_at = float("inf"), at(int(np.argmax(wrong & ~tiny)))
        return result
    error, smallest_normal = errors(actual, reference, scale), finfo(actual.dtype).tiny
    with np.errstate(all="ignore"):
        tiny_out = (_size(reference) < smallest_normal) & (reference != 0)
    tiny_in, on_edge = _any_of(_is_subnormal, elements, actual), _any_of(_is_edge, elements, actual)
    ordinary = ~tiny_in & ~tiny_out & ~on_edge
    if (error * ordinary).any():
        i = int(np.argmax(error * ordinary))
        result.worst, result.worst_at = float(error[i]), at(i)
    far = ordinary & (error > _FAR) & (scale is None) & bool(elements)
    bound = max(1.0, float(np.max(error * (ordinary & ~far), initial=0)))
    result.operands_flushed = bool((error[tiny_in & ~tiny_out] > bound).any())
    result.results_flushed = bool((error[tiny_out & ~tiny_in & (_size(reference) > smallest_normal / 2)] > bound).any())
    if actual.dtype.kind == "c":
        result.results_flushed |= bool((np.logical_or(*_flushed(actual, reference)) & ordinary).any())
    wrong = (on_edge & (error > _ON_EDGE * bound)) | ~_same_limits(
        actual, _rounded(reference, actual.dtype), exact_zeros=scale is None
    )
    wrong = (wrong & ~tiny_in & ~tiny_out) | far
    result.differ = int(wrong.sum())
    # Operands repeat in large arrays.
    examples = dict.fromkeys(at(int(i)) for i in np.flatnonzero(wrong)[: 8 * _EXAMPLES])
    result.differ_at = tuple(examples)[:_EXAMPLES]
    return result


def _same_limits(actual: np.ndarray, expected: np.ndarray, *, exact_zeros: bool) -> np.ndarray:
    """True if NaN, infinities and signed zeros match the reference; for complex numbers in both parts."""
    if actual.dtype.kind == "c":
        parts = [(actual.real, expected.real), (actual.imag, expected.imag)]
        first, second = (_same_limits(*part, exact_zeros=exact_zeros) for part in parts)
        return first & second
    actual, expected = extended(actual), extended(expected)
    nan = np.isnan(actual) == np.isnan(expected)
    infinite = np.isinf(actual) | np.isinf(expected)
    zero = (expected == 0) & exact_zeros
    same = (actual == expected) & (np.signbit(actual) == np.signbit(expected))
    return nan & (~(infinite | zero) | np.isnan(expected) | same)


def _rounded(reference: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        narrow = dtype.kind != "c" and dtype.itemsize < 4
        return reference.astype(np.float64).astype(dtype) if narrow else reference.astype(dtype)


def extended(array: np.ndarray) -> np.ndarray:
    """Floating-point or complex numbers in extended precision."""
    if array.dtype.kind == "c":
        return array.astype(np.clongdouble)
    with np.errstate(invalid="ignore"):  # ml_dtypes has NaN raise the flag
        return (array.astype(np.float64) if array.dtype.itemsize < 4 else array).astype(np.longdouble)


def _size(array: np.ndarray) -> np.ndarray:
    return np.fmax(abs(array.real), abs(array.imag)) if array.dtype.kind == "c" else abs(array)


def _any_of(test: Callable[[np.ndarray], np.ndarray], elements: Sequence[np.ndarray], actual: np.ndarray) -> np.ndarray:
    return np.logical_or.reduce([test(x) for x in elements]) if elements else np.zeros(actual.shape, bool)


def _is_edge(x: np.ndarray) -> np.ndarray:
    """True if a complex number may be on a branch cut: on an axis, where the sign of a zero decides, or not finite."""
    if x.dtype.kind != "c":
        return np.zeros(x.shape, bool)
    return (x.real == 0) | (x.imag == 0) | ~np.isfinite(x)


def _is_subnormal(x: np.ndarray) -> np.ndarray:
    """True if a number or a part of it is subnormal in the type that kernels compute with, of 32 bits or more."""
    if not is_inexact(x.dtype):
        return np.zeros(x.shape, bool)
    if x.dtype.kind == "c":
        return _is_subnormal(x.real) | _is_subnormal(x.imag)
    size = abs(extended(x))
    return (size > 0) & (size < finfo(x.dtype if x.dtype.itemsize >= 4 else np.dtype(np.float32)).tiny)

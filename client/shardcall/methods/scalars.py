"""Python numbers beside arrays: they take the arrays' element type, as in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_dtypes import iinfo

from shardcall._src.device_arrays.operands import OperandLike, to_numpy
from shardcall._src.types.element_types import DType, parse_dtype
from shardcall._src.types.errors import InvalidOperandError, OperandOverflowError
from shardcall._src.types.functions import COMPARISONS

_INT64, _UINT64 = range(-(2**63), 2**63), range(2**64)
_NIBBLES = ("int4", "uint4")
_MOST_TOLD = 10**60


def typed(name: str, operands: Sequence[OperandLike | None]) -> tuple[OperandLike | None, ...]:
    """Returns a function's operands, its Python numbers as NumPy's scalars of the type that NumPy gives them.

    Of what stands beside no array, or beside one whose type NumPy does not know, NumPy decides later.

    Raises:
        OperandOverflowError: for an integer that the type does not hold; comparisons go by its value.
    """
    known = next((dtype for dtype in map(_dtype, operands) if dtype is not None), None)
    if known is None:
        large: list[Any] = [item for item in operands if type(item) is int and item not in _INT64]
        if not large or not all(map(_is_number, operands)):
            return tuple(operands)
        if name in COMPARISONS:
            return tuple(_by_value(item) for item in operands)
        if _computes_in_integers(name) or not all(item in _UINT64 for item in large):
            raise _overflow(name, max(large, key=abs), np.dtype(np.int64), "beside Python's numbers")
        return tuple(operands)
    return tuple(_typed(name, item, known) if _is_number(item) else item for item in operands)


def bounds(
    x: OperandLike, low: OperandLike | None, high: OperandLike | None
) -> tuple[OperandLike | None, OperandLike | None]:
    """Returns the bounds of `clip` without Python integers that no element of x can be beyond, as NumPy does."""
    dtype = np.dtype(np.int64) if type(x) is int and x in _INT64 else _dtype(x)
    if dtype is None or not (dtype.kind in "iu" or dtype.name in _NIBBLES):
        return low, high
    info = iinfo(dtype)  # type: ignore[no-untyped-call]  # NumPy has none for int4
    if type(low) is int and low <= info.min:
        low = None
    if type(high) is int and high >= info.max:
        high = None
    return low, high


def begun(name: str, x: OperandLike, dtype: str | None, initial: OperandLike | None) -> OperandLike | None:
    """Returns what a reduction begins with: a number for an integer result as one of its type, as NumPy converts it.

    Args:
        name: of the reduction.
        x: what it reduces.
        dtype: the result's type as asked for; None for NumPy's.
        initial: as given.

    Raises:
        OperandOverflowError: for a number that the result's type does not hold.
        InvalidOperandError: for NaN where the result is of integers.
    """
    of_x = _dtype(x)
    if of_x is None or isinstance(initial, bool) or not isinstance(initial, int | float | np.integer | np.floating):
        return initial
    how = {} if dtype is None else {"dtype": parse_dtype(dtype)}
    result = getattr(np, name)(np.ones(1, of_x), **how).dtype
    if result.kind not in "iu" and not isinstance(initial, int | np.integer):
        return initial
    if not np.isfinite(initial):
        kind = InvalidOperandError if np.isnan(initial) else OperandOverflowError
        raise kind(f"initial={initial} and the result is of {result.name}; give an integer, or a dtype that holds it")
    try:
        return np.asarray(int(initial), result)
    except OverflowError:
        raise _overflow(name, int(initial), result, f"for a result of {result.name}") from None


def row(operand: OperandLike) -> OperandLike:
    """Returns a number as an array of one element, and anything else as it is."""
    return np.reshape(np.asarray(operand), 1) if _is_number(operand) or isinstance(operand, np.generic) else operand


def _is_number(item: object) -> bool:
    return type(item) in (int, float, complex)


def _dtype(operand: OperandLike | None) -> DType | None:
    # None for what has no type of its own, and for what is no operand, which is refused by its name later.
    dtype = getattr(operand, "dtype", None)
    if isinstance(dtype, np.dtype):
        return dtype
    if operand is None or isinstance(operand, bool) or _is_number(operand):
        return None
    try:
        return to_numpy(operand, "").dtype
    except InvalidOperandError:
        return None


def _by_value(number: Any) -> OperandLike:
    # What no integer type holds is beyond all that they hold.
    if type(number) is not int or number in _INT64 or number in _UINT64:
        return np.asarray(number)
    return np.asarray(np.inf if number > 0 else -np.inf)


def _computes_in_integers(name: str) -> bool:
    ufunc = getattr(np, name)
    integer = np.dtype(np.int64)
    return not isinstance(ufunc, np.ufunc) or ufunc.resolve_dtypes((integer,) * ufunc.nin + (None,))[0] == integer


def _typed(name: str, number: Any, beside: DType) -> OperandLike:
    ufunc = getattr(np, name)
    if not isinstance(ufunc, np.ufunc) or ufunc.nin != 2:  # where, clip
        ufunc = np.add
    try:
        dtype = ufunc.resolve_dtypes((beside, type(number), None))[1]
        return np.asarray(number, None if dtype.hasobject else dtype)
    except TypeError:
        return np.asarray(number)
    except OverflowError:
        if name not in COMPARISONS:
            raise _overflow(name, number, dtype, f"beside an array of {beside.name}") from None
        return _by_value(number)


def _overflow(name: str, number: int, dtype: DType, where: str) -> OperandOverflowError:
    wider = "int64" if number in _INT64 else "uint64" if number in _UINT64 else "float64"
    return OperandOverflowError(
        f"{name}: the integer {_shortened(number)} {where} does not fit {dtype.name}; "
        f"give it as an array of a type that holds it, such as numpy.{wider}(…)"
    )


def _shortened(number: int) -> str:
    """An integer's digits, or how large it is where there are many."""
    return str(number) if abs(number) < _MOST_TOLD else f"of {number.bit_length()} bits"

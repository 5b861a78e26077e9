"""Python numbers as operands beside arrays, whose element type they take or do not fit, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from ml_dtypes import iinfo

from shardcall._src.device_arrays.operands import OperandLike, to_numpy
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall_core.element_types import DType
from shardcall_core.functions import type_rules
from shardcall_core.functions.elementwise import COMPARISONS
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.errors import InvalidOperandError, OperandOverflowError

_INT64, _UINT64 = range(-(2**63), 2**63), range(2**64)
_NIBBLES = ("int4", "uint4")
_MAX_DIGITS = 10**60
_WHERE_LEAVES_OUT_BITS = np.lib.NumpyVersion(np.__version__) < "2.5.0"
"""True if ``numpy.where`` takes integers that the type does not hold, without their upper bits."""


def typed(name: str, operands: Sequence[OperandLike | None]) -> tuple[OperandLike | None, ...]:
    """Returns a function's operands, with Python numbers as scalars of the type that NumPy gives them.

    Numbers beside no array, or beside one whose type NumPy does not know, are returned unchanged.

    Raises:
        OperandOverflowError: for an integer that the type does not hold; a comparison compares its value instead.
    """
    for operand in operands:
        if (beside := _dtype(operand)) is not None:
            break
    else:
        numbers: list[Any] = [getattr(item, "number", item) for item in operands]
        large = [number for number in numbers if type(number) is int and number not in _INT64]
        if not large or not all(map(_is_number, operands)):
            return tuple(operands)
        if name in COMPARISONS:
            return tuple(_by_value(item) for item in operands)
        if _computes_in_integers(name) or not all(item in _UINT64 for item in large):
            raise _overflow(name, max(large, key=abs), np.dtype(np.int64), "beside Python's numbers")
        return tuple(operands)
    return tuple([_typed(name, item, beside) if _is_number(item) else item for item in operands])


def clip_operands(x: OperandLike, low: OperandLike | None, high: OperandLike | None) -> tuple[OperandLike | None, ...]:
    """Returns the operands of `clip`, Python numbers in the type that NumPy finds for all three together.

    Raises:
        OperandOverflowError: for an integer that the type does not hold.
    """
    if type(x) is int and x not in _INT64:
        return typed("clip", (x, low, high))
    x = _in_type(x, None) if _is_number(x) else x  # NumPy makes it an array first
    low, high = _bounds(x, low, high)
    dtype = _clip_type(x, low, high)
    if dtype is None:
        return typed("clip", (x, low, high))
    ends = []
    for end in (low, high):
        try:
            ends.append(_in_type(end, dtype) if _is_number(end) else end)
        except OverflowError:
            number: Any = getattr(end, "number", end)
            raise _overflow("clip", number, dtype, "beside the other operands") from None
    return (x, *ends)


def _clip_type(x: OperandLike, *ends: OperandLike | None) -> DType | None:
    """Returns the type of the result of ``numpy.clip``; None where NumPy has none, or does not know it."""
    arrays: list[Any] = []
    for operand in (x, *ends):
        number: Any = getattr(operand, "python_type", type(operand))
        dtype = _dtype(operand)
        if dtype is None and operand is not None and number not in (int, float, complex, bool):
            return None  # which is refused by name later
        arrays.append(None if operand is None else np.empty(0, dtype) if dtype is not None else number(1))
    try:
        return None if all(operand is None for operand in ends) else np.clip(*arrays).dtype
    except TypeError:
        return None


def _bounds(
    x: OperandLike, low: OperandLike | None, high: OperandLike | None
) -> tuple[OperandLike | None, OperandLike | None]:
    """Returns the bounds of `clip`, without Python integers beyond the range of x's type, as NumPy does."""
    dtype = np.dtype(np.int64) if type(x) is int and x in _INT64 else _dtype(x)
    if dtype is None or not (dtype.kind in "iu" or dtype.name in _NIBBLES):
        return low, high
    info = iinfo(dtype)  # type: ignore[no-untyped-call]  # NumPy has none for int4
    if type(low) is int and low <= info.min:
        low = None
    if type(high) is int and high >= info.max:
        high = None
    return _limited(max, low, int(info.min)), _limited(min, high, int(info.max))


def _limited(compute: Callable[..., Any], bound: Any, limit: int) -> Any:
    """Returns a bound that is an integer argument of a traced function within the range of a type."""
    return bound.computed(compute, limit) if getattr(bound, "python_type", None) is int else bound


def typed_initial(name: str, x: OperandLike, dtype: str | None, initial: OperandLike | None) -> OperandLike | None:
    """Returns the initial value of a reduction; a number for an integer result is converted to its type as by NumPy.

    Args:
        name: the name of the reduction.
        x: its array.
        dtype: the name of the requested element type; None for NumPy's.
        initial: the value that the caller passes.

    Raises:
        OperandOverflowError: for a number that the result's type does not hold.
        InvalidOperandError: for NaN and a result of integers.
    """
    of_x = _dtype(x)
    if of_x is None or isinstance(initial, bool) or not isinstance(initial, int | float | np.integer | np.floating):
        return initial
    try:
        result = type_rules.reduction(name)((of_x,), {"dtype": dtype})
    except TypeError:  # which the server explains
        return initial
    if result.kind not in "iu" and not isinstance(initial, int | np.integer):
        return initial
    if not np.isfinite(initial):
        error_class = InvalidOperandError if np.isnan(initial) else OperandOverflowError
        raise error_class(
            f"initial={initial} and the result is of {result.name}; give an integer, or a dtype that holds it"
        )
    try:
        return np.asarray(int(initial), result)
    except OverflowError:
        raise _overflow(name, int(initial), result, f"for a result of {result.name}") from None


def row(operand: OperandLike) -> OperandLike:
    """Returns a number, or an array without axes, as an array of one element, and anything else as it is."""
    if (array := find_remote_array(operand)) is not None:
        return operand if array.ndim else array.reshape(1)
    is_array = isinstance(operand, np.ndarray | np.generic)
    is_scalar = not operand.ndim if is_array else type(operand) is bool or _is_number(operand)  # type: ignore[union-attr]
    return np.reshape(np.asarray(operand), 1) if is_scalar else operand


def _is_number(item: object) -> bool:
    return type(item) in (int, float, complex) or hasattr(type(item), "python_type")  # that of a traced function


def _dtype(operand: OperandLike | None) -> DType | None:
    # None for values without an element type, and for invalid operands, which are refused by name later.
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
    return _in_type(_computed(_compared, number), None)


def _computed(compute: Callable[..., Any], number: Any, *others: complex) -> Any:
    is_traced = hasattr(number, "python_type")
    return number.computed(compute, *others) if is_traced else compute(number, *others)


def _compared(number: complex) -> complex:
    """Returns a number that compares as a number does: an infinity for an integer of more than 64 bits."""
    if type(number) is not int or number in _INT64 or number in _UINT64:
        return number
    return np.inf if number > 0 else -np.inf


def _without_upper_bits(number: int, low: int, high: int) -> int:
    """Returns the number from low to high that has an integer's lower bits.

    Raises:
        OverflowError: for an integer of more than 64 bits.
    """
    if number not in _INT64 and number not in _UINT64:
        raise OverflowError
    return (number - low) % (high - low + 1) + low


def _computes_in_integers(name: str) -> bool:
    integer = np.dtype(np.int64)
    return type_rules.loop(name, *[integer] * len(FUNCTIONS[name].operands)).operands[-1] == integer


def _typed(name: str, number: Any, beside: DType) -> OperandLike:
    ufunc = getattr(np, name)
    if not isinstance(ufunc, np.ufunc) or ufunc.nin != 2:  # where, clip
        ufunc = np.add
    try:
        dtype = ufunc.resolve_dtypes((beside, getattr(number, "python_type", type(number)), None))[1]
        return _in_type(number, None if dtype.hasobject else dtype)
    except TypeError:
        return _in_type(number, None)
    except OverflowError:
        if name in COMPARISONS:
            return _by_value(number)
        with suppress(OverflowError):
            if _WHERE_LEAVES_OUT_BITS and name == "where":
                info = np.iinfo(dtype)
                return _in_type(_computed(_without_upper_bits, number, int(info.min), int(info.max)), dtype)
        number = getattr(number, "number", number)
        raise _overflow(name, number, dtype, f"beside an array of {beside.name}") from None


def _in_type(number: Any, dtype: DType | None) -> OperandLike:
    if hasattr(number, "python_type"):
        return number.in_type(dtype)  # type: ignore[no-any-return]
    return np.asarray(number, dtype)


def _overflow(name: str, number: int, dtype: DType, where: str) -> OperandOverflowError:
    wider = "int64" if number in _INT64 else "uint64" if number in _UINT64 else "float64"
    return OperandOverflowError(
        f"{name}: the integer {_shortened(number)} {where} does not fit {dtype.name}; "
        f"give it as an array of a type that holds it, such as numpy.{wider}(…)"
    )


def _shortened(number: int) -> str:
    """Returns the digits of an integer, or its size if there are many."""
    return str(number) if abs(number) < _MAX_DIGITS else f"of {number.bit_length()} bits"

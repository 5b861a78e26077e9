"""Python numbers beside arrays: they take the arrays' element type, as in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardcall.element_types import DType
from shardcall.errors import InvalidOperandError
from shardcall.functions import COMPARISONS
from shardcall.operands import OperandLike


def typed(name: str, operands: Sequence[OperandLike | None]) -> tuple[OperandLike | None, ...]:
    """Returns a function's operands, its Python numbers as NumPy's scalars of the type that NumPy gives them.

    Of what stands beside no array, or beside one whose type NumPy does not know, NumPy decides later.

    Raises:
        InvalidOperandError: for an integer that the type does not hold; comparisons take it as it is.
    """
    known = next((dtype for dtype in map(_dtype, operands) if dtype is not None), None)
    if known is None:
        return tuple(operands)
    return tuple(_typed(name, item, known) if type(item) in (int, float, complex) else item for item in operands)


def _dtype(operand: OperandLike | None) -> DType | None:
    if isinstance(operand, list | tuple | np.generic):
        return np.asarray(operand).dtype
    dtype = getattr(operand, "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else None


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
        if name in COMPARISONS:
            return np.asarray(number)
        raise InvalidOperandError(
            f"{name}: the integer {number} beside an array of {beside.name} does not fit {dtype.name}; "
            "give it as an array of a wider type, such as numpy.int64(…)"
        ) from None

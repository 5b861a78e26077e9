"""Element types of the protocol and their NumPy dtypes; the refusal of a dtype that names none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from shardcall.v1 import array_pb2
from shardcall_core.call_error import shorten
from shardcall_core.element_types import NAMED, DType
from shardcall_core.types.errors import OperandTypeError, ProtocolError

ElementType: TypeAlias = array_pb2.ElementType.ValueType

DTYPES: Mapping[ElementType, DType] = MappingProxyType(
    {array_pb2.ElementType.Value(f"ELEMENT_TYPE_{name.upper()}"): dtype for name, dtype in NAMED.items()}
)
"""The NumPy dtype, in the host's byte order, of every element type."""

# By name, since NumPy has several types of one name (int64 and longlong) and ml_dtypes registers none.
_BY_NAME: Mapping[str, ElementType] = MappingProxyType({dtype.name: code for code, dtype in DTYPES.items()})
# The common case: NumPy computes the name of a dtype anew each time.
_BY_DTYPE: Mapping[DType, ElementType] = MappingProxyType({dtype: code for code, dtype in DTYPES.items()})

NATIVE_DTYPES = frozenset(_BY_DTYPE)
"""The dtypes of all element types, in the host's byte order."""

NAMES: tuple[str, ...] = tuple(_BY_NAME)
"""The names of all element types."""


def to_element_type(dtype: DType, field: str = "operand") -> ElementType:
    """Returns the element type of a NumPy dtype of any byte order.

    Raises:
        OperandTypeError: if there is none.
    """
    code = _BY_DTYPE.get(dtype)
    if code is None:
        code = _BY_NAME.get(dtype.name)
    if code is None:
        raise refusal(str(dtype), field)
    return code


def to_dtype(code: ElementType) -> DType:
    """Returns the NumPy dtype, in the host's byte order, of an element type.

    Raises:
        ProtocolError: if this client does not know the type.
    """
    try:
        return DTYPES[code]
    except KeyError:
        raise ProtocolError(
            f"the server answers with element type {code}, which this client does not know; update shardcall"
        ) from None


def parse_dtype(value: npt.DTypeLike) -> DType:
    """Returns the dtype, in the host's byte order, of a name, a type or a dtype.

    Raises:
        OperandTypeError: if it is no dtype, or not one of an element type.
    """
    if isinstance(value, str) and value in _BY_NAME:
        return DTYPES[_BY_NAME[value]]
    try:
        dtype = None if value is None else np.dtype(value)  # NumPy takes None for float64
    except (TypeError, ValueError):
        dtype = None
    if dtype is None:
        shown, allowed = shorten(repr(value)), ", ".join(NAMES)
        raise OperandTypeError(f"dtype is {shown}, which names no element type; give one of: {allowed}", field="dtype")
    return DTYPES[to_element_type(dtype, "dtype")]


def dtype_name(value: npt.DTypeLike | None) -> str | None:
    """Returns the name of the dtype that a caller passes; None for None.

    Raises:
        OperandTypeError: as `parse_dtype`.
    """
    return None if value is None else parse_dtype(value).name


def refusal(name: str, field: str) -> OperandTypeError:
    """Returns the error for an unknown element type; it names those that are allowed."""
    instead = f"convert it to one of: {', '.join(NAMES)}"
    if name.startswith(("datetime64", "timedelta64")):
        instead = "give its integers, .view('int64'), and view the result as what they count"
    return OperandTypeError(f"{field} has element type {name}, which cannot travel; {instead}", field=field)

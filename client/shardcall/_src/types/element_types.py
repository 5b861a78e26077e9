"""The element types that travel, and what NumPy calls them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from shardcall._src.types.errors import OperandTypeError, ProtocolError
from shardcall.v1 import array_pb2

DType: TypeAlias = np.dtype[Any]
ElementType: TypeAlias = array_pb2.ElementType.ValueType

_DTYPES: Mapping[ElementType, DType] = MappingProxyType(
    {
        array_pb2.ELEMENT_TYPE_BOOL: np.dtype(np.bool_),
        array_pb2.ELEMENT_TYPE_INT8: np.dtype(np.int8),
        array_pb2.ELEMENT_TYPE_INT16: np.dtype(np.int16),
        array_pb2.ELEMENT_TYPE_INT32: np.dtype(np.int32),
        array_pb2.ELEMENT_TYPE_INT64: np.dtype(np.int64),
        array_pb2.ELEMENT_TYPE_UINT8: np.dtype(np.uint8),
        array_pb2.ELEMENT_TYPE_UINT16: np.dtype(np.uint16),
        array_pb2.ELEMENT_TYPE_UINT32: np.dtype(np.uint32),
        array_pb2.ELEMENT_TYPE_UINT64: np.dtype(np.uint64),
        array_pb2.ELEMENT_TYPE_INT4: np.dtype(ml_dtypes.int4),
        array_pb2.ELEMENT_TYPE_UINT4: np.dtype(ml_dtypes.uint4),
        array_pb2.ELEMENT_TYPE_FLOAT16: np.dtype(np.float16),
        array_pb2.ELEMENT_TYPE_BFLOAT16: np.dtype(ml_dtypes.bfloat16),
        array_pb2.ELEMENT_TYPE_FLOAT32: np.dtype(np.float32),
        array_pb2.ELEMENT_TYPE_FLOAT64: np.dtype(np.float64),
        array_pb2.ELEMENT_TYPE_FLOAT8_E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
        array_pb2.ELEMENT_TYPE_FLOAT8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
        array_pb2.ELEMENT_TYPE_COMPLEX64: np.dtype(np.complex64),
        array_pb2.ELEMENT_TYPE_COMPLEX128: np.dtype(np.complex128),
    }
)
# By name, since NumPy has several types of one name (int64 and longlong) and ml_dtypes registers none.
_BY_NAME: Mapping[str, ElementType] = MappingProxyType({dtype.name: code for code, dtype in _DTYPES.items()})
# What most dtypes are equal to: NumPy works a name out anew each time it is asked for one.
_BY_DTYPE: Mapping[DType, ElementType] = MappingProxyType({dtype: code for code, dtype in _DTYPES.items()})

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
        ProtocolError: if the server speaks of a type that this client does not know.
    """
    try:
        return _DTYPES[code]
    except KeyError:
        raise ProtocolError(
            f"the server answers with element type {code}, which this client does not know; update shardcall"
        ) from None


def parse_dtype(value: npt.DTypeLike) -> DType:
    """Returns the dtype, in the host's byte order, that a caller means by a name, a type or a dtype.

    Raises:
        OperandTypeError: if it is no dtype, or none that travels.
    """
    if isinstance(value, str) and value in _BY_NAME:
        return _DTYPES[_BY_NAME[value]]
    if value is None:  # NumPy takes it for float64
        raise refusal("None", "dtype")
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError):
        raise refusal(repr(value), "dtype") from None
    return _DTYPES[to_element_type(dtype, "dtype")]


def refusal(given: str, field: str) -> OperandTypeError:
    """Returns the error that says which types may be given instead."""
    instead = f"convert it to one of: {', '.join(NAMES)}"
    if given.startswith(("datetime64", "timedelta64")):
        instead = "give its integers, .view('int64'), and view the result as what they count"
    return OperandTypeError(f"{field} has element type {given}, which cannot travel; {instead}", field=field)

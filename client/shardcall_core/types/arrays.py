"""Types of arrays, and arrays as bytes."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from shardcall.v1 import array_pb2
from shardcall_core.element_types import DType
from shardcall_core.types.element_types import parse_dtype, to_dtype, to_element_type
from shardcall_core.types.errors import InvalidOperandError
from shardcall_core.types.tracebacks import shortened

NDArray: TypeAlias = npt.NDArray[Any]


class HasType(Protocol):
    """An object with a shape and an element type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""

    @property
    def dtype(self) -> DType:
        """The element type."""


@dataclass(frozen=True, init=False, repr=False)
class Array:
    """The type of an array, for which a kernel is planned or compiled.

    Args:
        shape: the size of each axis; an integer for one axis.
        dtype: the element type: a name such as ``"bfloat16"``, or whatever ``numpy.dtype`` takes.

    Raises:
        InvalidOperandError: for a negative size.
        OperandTypeError: for an unsupported element type.
    """

    shape: tuple[int, ...]
    dtype: DType

    @shortened
    def __init__(self, shape: int | Iterable[int], dtype: npt.DTypeLike) -> None:
        object.__setattr__(self, "shape", _checked(_sizes(shape)))
        object.__setattr__(self, "dtype", parse_dtype(dtype))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes of an array of this type."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"Array({self.shape}, {self.dtype.name!r})"

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def row_major(array: NDArray) -> NDArray:
    """Returns an array as row-major and little-endian; copies only if it is not."""
    return np.asarray(array, dtype=_little_endian(array.dtype), order="C")


def type_of(array: HasType, field: str = "operand") -> Array:
    """Returns the type of an array, wherever it is; ``field`` is its name in an error."""
    return _array(array.shape, to_dtype(to_element_type(array.dtype, field)))


def to_proto(value: HasType | None) -> array_pb2.ArrayType:
    """Returns an array's type as a message; None, an operand left out, has no element type."""
    if value is None:
        return array_pb2.ArrayType()
    return array_pb2.ArrayType(element_type=to_element_type(value.dtype), shape=value.shape)


def from_proto(message: array_pb2.ArrayType) -> Array | None:
    """Returns the type in a message; None for an operand left out."""
    if message.element_type == array_pb2.ELEMENT_TYPE_UNSPECIFIED:
        return None
    return _array(_checked(tuple(message.shape)), to_dtype(message.element_type))


def as_bytes_view(array: NDArray) -> npt.NDArray[np.uint8]:
    """Returns a row-major array's memory as bytes, without a copy."""
    return array.reshape(-1).view(np.uint8)


def from_bytes(data: bytes, array_type: Array) -> NDArray:
    """Returns a new array of a type from received bytes, as many as it needs."""
    return native(np.ndarray(array_type.shape, _little_endian(array_type.dtype), data).copy())


def empty(array_type: Array) -> NDArray:
    """Returns an uninitialized array for received bytes; `native` converts it afterwards."""
    return np.empty(array_type.shape, _little_endian(array_type.dtype))


def native(array: NDArray) -> NDArray:
    """Returns an array in the host's byte order; the same one on little-endian hosts."""
    return array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("="))


def _sizes(shape: int | Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape)) if isinstance(shape, Iterable) else (operator.index(shape),)
    except TypeError:
        raise InvalidOperandError(f"shape is {shape!r}; give integers, 0 or more", field="shape") from None


def _checked(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if sizes and not 0 <= min(sizes) <= max(sizes) < 2**63:
        raise InvalidOperandError(f"shape is {sizes}; sizes are 0 or more and fit 63 bits", field="shape")
    return sizes


def _array(shape: tuple[int, ...], dtype: DType) -> Array:
    """Returns a type without checking its sizes and dtype, which is most of the work of the constructor."""
    array_type = object.__new__(Array)
    object.__setattr__(array_type, "shape", shape)
    object.__setattr__(array_type, "dtype", dtype)
    return array_type


def _little_endian(dtype: DType) -> DType:
    if dtype.isnative and sys.byteorder == "little":
        return dtype
    # Types of one byte, and those of ml_dtypes, have no byte order to set.
    return dtype if dtype.itemsize == 1 or dtype.isbuiltin == 2 else dtype.newbyteorder("<")

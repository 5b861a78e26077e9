"""Conversion of a caller's operands to NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.remote_array import SupportsRemoteArray
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.element_types import refusal, to_element_type
from shardcall_core.types.errors import InvalidOperandError, OperandTypeError, TracingError


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of another library that NumPy can read in place."""

    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


OperandLike: TypeAlias = npt.ArrayLike | SupportsDLPack | SupportsRemoteArray
"""An array-like: an array, scalar, nested list, ``__array__``, ``__dlpack__`` or buffer; or a `RemoteArray`."""


def as_operand(value: OperandLike, field: str) -> NDArray:
    """Returns a caller's operand as a NumPy array of a supported element type, of any memory layout.

    Copies only values that are not arrays.

    Raises:
        InvalidOperandError: if NumPy cannot convert it, or would lose a mask.
        OperandTypeError: if its element type is not supported.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidOperandError(
            f"{field} is a masked array, whose mask would be lost; give value.filled(…)", field=field
        )
    array = to_numpy(value, field)
    if array.dtype.kind in "OUSV" and (problem := _no_array(value)):
        raise OperandTypeError(f"{field} is {problem}", field=field)
    if array.dtype.hasobject and isinstance(value, int):
        raise OperandTypeError(
            f"{field} is an integer below -2**63 or above 2**64 - 1; give a smaller one", field=field
        )
    if array.dtype.hasobject:
        raise refusal(f"object (from {type(value).__name__})", field)
    to_element_type(array.dtype, field)
    return array


def _no_array(value: object) -> str:
    """Returns a description of an object that is no array of numbers, with what to pass instead; empty for arrays."""
    if isinstance(value, np.ndarray | np.generic | list | tuple | int) or hasattr(value, "__array__"):
        return ""
    if isinstance(value, Iterator):
        return f"a {type(value).__name__}, which NumPy does not read; give list(…), or numpy.fromiter(…, dtype)"
    description = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
    inside = ", such as list(….values())" if isinstance(value, Mapping) else ""
    return f"{description}, which is no array of numbers; give an array, a number or nested lists of numbers{inside}"


def to_numpy(value: Any, field: str) -> NDArray:
    """Returns an array-like as a NumPy array, without a copy where possible.

    Raises:
        InvalidOperandError: if NumPy cannot convert it.
        TracingError: if it has no values yet.
    """
    try:
        # Numbers and lists have neither attribute; checking the protocol would be most of the work for them.
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__") and isinstance(value, SupportsDLPack):
            return np.from_dlpack(value)
        return np.asarray(value)
    except TracingError:  # of an array of a traced function
        raise
    except Exception as error:  # `value` is foreign code and may raise anything
        reason = str(error).partition("\n")[0]
        raise InvalidOperandError(f"{field} is no array: {reason}", field=field) from error

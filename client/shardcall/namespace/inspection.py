"""Descriptions of the namespace, its devices and its element types."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall._src.device_arrays.standard_methods import DEVICE, VERSIONS
from shardcall.namespace.base import NamespaceBase
from shardcall_core.functions.element_types import NAMED, DType, is_float
from shardcall_core.types.element_types import parse_dtype

STANDARD_VERSION = VERSIONS[-1]
"""The version of the Python array API standard."""

_DEFAULTS = {
    "real floating": np.dtype(np.float64),
    "complex floating": np.dtype(np.complex128),
    "integral": np.dtype(np.int64),
    "indexing": np.dtype(np.int64),
}
_OF_THE_STANDARD = [dtype for name, dtype in NAMED.items() if dtype.isbuiltin == 1 and name != "float16"]


class NamespaceInfo:
    """The devices and the element types of a namespace, as the Python array API standard describes them."""

    def capabilities(self) -> dict[str, Any]:
        """Returns what the namespace can do: index by masks, and results whose size depends on values."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}

    def default_device(self) -> str:
        """Returns the device of new arrays."""
        return DEVICE

    def devices(self) -> list[str]:
        """Returns all devices; the meshes of a server are one device here."""
        return [DEVICE]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """Returns the element types that new arrays have by default."""
        check_device({"device": device})
        return dict(_DEFAULTS)

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """Returns the element types of the standard, by name.

        Args:
            device: ``"mesh"`` or None.
            kind: one or several kinds, as of ``isdtype``; None for all.
        """
        check_device({"device": device})
        return {dtype.name: dtype for dtype in _OF_THE_STANDARD if kind is None or np.isdtype(dtype, kind)}


class InspectionNamespace(NamespaceBase):
    """Element types, and what is to be known about them."""

    bool: type[np.bool] = np.bool
    bool_: type[np.bool] = np.bool
    int8: type[np.int8] = np.int8
    int16: type[np.int16] = np.int16
    int32: type[np.int32] = np.int32
    int64: type[np.int64] = np.int64
    uint8: type[np.uint8] = np.uint8
    uint16: type[np.uint16] = np.uint16
    uint32: type[np.uint32] = np.uint32
    uint64: type[np.uint64] = np.uint64
    float16: type[np.float16] = np.float16
    float32: type[np.float32] = np.float32
    float64: type[np.float64] = np.float64
    complex64: type[np.complex64] = np.complex64
    complex128: type[np.complex128] = np.complex128
    bfloat16: type[np.generic] = ml_dtypes.bfloat16
    int4: type[np.generic] = ml_dtypes.int4
    uint4: type[np.generic] = ml_dtypes.uint4
    float8_e4m3fn: type[np.generic] = ml_dtypes.float8_e4m3fn
    float8_e5m2: type[np.generic] = ml_dtypes.float8_e5m2

    __array_api_version__ = STANDARD_VERSION

    def __array_namespace_info__(self) -> NamespaceInfo:
        """Returns the devices and the element types."""
        return NamespaceInfo()

    def finfo(self, dtype: Any, /) -> Any:
        """Returns the limits of a floating-point or complex type, or of that of an array, as ``numpy.finfo``."""
        kind = _dtype_of(dtype)
        return np.finfo(kind) if kind.isbuiltin == 1 else ml_dtypes.finfo(kind)  # type: ignore[no-untyped-call]

    def iinfo(self, dtype: Any, /) -> Any:
        """Returns the limits of an integer type, or of that of an array, as ``numpy.iinfo``."""
        kind = _dtype_of(dtype)
        return np.iinfo(kind) if kind.isbuiltin == 1 else ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]

    def can_cast(self, from_: Any, to: npt.DTypeLike, /, casting: Any = "safe") -> builtins.bool:
        """Returns whether a type, or that of an array, converts to another by a rule, as ``numpy.can_cast``."""
        return np.can_cast(_dtype_of(from_), to, casting)

    def isdtype(self, dtype: npt.DTypeLike, kind: Any) -> builtins.bool:
        """Returns whether a type is another one, or of a kind such as ``"integral"``, as ``numpy.isdtype``."""
        own = parse_dtype(dtype)
        if own.isbuiltin == 1:
            return np.isdtype(own, kind)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        integral = "unsigned integer" if own.name.startswith("u") else "signed integer"
        its = ("real floating", "numeric") if is_float(own) else (integral, "integral", "numeric")
        return any(isinstance(each, str) and each in its for each in kinds) or any(
            not isinstance(each, str) and own == np.dtype(each) for each in kinds
        )

    def result_type(self, *arrays_and_dtypes: Any) -> DType:
        """Returns the element type of arrays, types and numbers together, as ``numpy.result_type``."""
        return np.result_type(*map(_typed, arrays_and_dtypes))

    def broadcast_shapes(self, *shapes: Any) -> tuple[int, ...]:
        """Returns the shape to which shapes broadcast, as ``numpy.broadcast_shapes``."""
        return np.broadcast_shapes(*shapes)


def check_device(to: Mapping[str, Any]) -> None:
    """Checks the keywords of a function that say where its result is.

    Raises:
        TypeError: for an unknown keyword.
        ValueError: for a device that there is not.
    """
    if unknown := sorted(to.keys() - {"device", "mesh", "spec"}):
        raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}; there are device, mesh and spec")
    if to.get("device") not in (None, DEVICE):
        raise ValueError(
            f"device={to['device']!r}; the only device is {DEVICE!r}: give mesh=… or spec=… to choose among its devices"
        )


def _typed(item: Any) -> Any:
    array = find_remote_array(item)
    return item if array is None else array.dtype


def _dtype_of(item: OperandLike | npt.DTypeLike) -> DType:
    dtype = getattr(item, "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else parse_dtype(item)  # type: ignore[arg-type]  # else refused

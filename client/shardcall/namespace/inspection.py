"""Descriptions of the namespace, and functions of its element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.array_protocols import DEVICE, VERSIONS
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.namespace.base import NamespaceBase
from shardcall.namespace.destinations import check_device
from shardcall_core.element_types import NAMED, DType, is_float
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


def finfo(_: NamespaceBase, dtype: Any, /) -> Any:
    """Returns the limits of a floating-point or complex type, or of that of an array, as ``numpy.finfo``."""
    parsed = _dtype_of(dtype)
    return np.finfo(parsed) if parsed.isbuiltin == 1 else ml_dtypes.finfo(parsed)  # type: ignore[no-untyped-call]


def iinfo(_: NamespaceBase, dtype: Any, /) -> Any:
    """Returns the limits of an integer type, or of that of an array, as ``numpy.iinfo``."""
    parsed = _dtype_of(dtype)
    return np.iinfo(parsed) if parsed.isbuiltin == 1 else ml_dtypes.iinfo(parsed)  # type: ignore[no-untyped-call]


def can_cast(_: NamespaceBase, from_: Any, to: npt.DTypeLike, /, casting: Any = "safe") -> bool:
    """Returns whether a type, or that of an array, converts to another by a rule, as ``numpy.can_cast``."""
    return np.can_cast(_dtype_of(from_), to, casting)


def isdtype(_: NamespaceBase, dtype: npt.DTypeLike, kind: Any) -> bool:
    """Returns whether a type is another one, or of a kind such as ``"integral"``, as ``numpy.isdtype``."""
    parsed = parse_dtype(dtype)
    if parsed.isbuiltin == 1:
        return np.isdtype(parsed, kind)
    categories = kind if isinstance(kind, tuple) else (kind,)
    integral = "unsigned integer" if parsed.name.startswith("u") else "signed integer"
    its = ("real floating", "numeric") if is_float(parsed) else (integral, "integral", "numeric")
    return any(isinstance(item, str) and item in its for item in categories) or any(
        not isinstance(item, str) and parsed == np.dtype(item) for item in categories
    )


def result_type(_: NamespaceBase, *arrays_and_dtypes: Any) -> DType:
    """Returns the element type of arrays, types and numbers together, as ``numpy.result_type``."""
    return np.result_type(*map(_typed, arrays_and_dtypes))


def broadcast_shapes(_: NamespaceBase, *shapes: Any) -> tuple[int, ...]:
    """Returns the shape to which shapes broadcast, as ``numpy.broadcast_shapes``."""
    return np.broadcast_shapes(*shapes)


def _typed(item: Any) -> Any:
    array = find_remote_array(item)
    return item if array is None else array.dtype


def _dtype_of(item: OperandLike | npt.DTypeLike) -> DType:
    dtype = getattr(item, "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else parse_dtype(item)  # type: ignore[arg-type]  # else refused

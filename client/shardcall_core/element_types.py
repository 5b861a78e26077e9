"""The element types of arrays, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

DType: TypeAlias = np.dtype[Any]

_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *(ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
)

NAMED: Mapping[str, DType] = MappingProxyType({dtype.name: dtype for dtype in map(np.dtype, _TYPES)})
"""Every element type, in the host's byte order."""


def canonical(dtype: DType) -> DType:
    """Returns the element type equal to a dtype: NumPy has two types of one name, long and longlong.

    Raises:
        TypeError: if there is none.
    """
    for named in NAMED.values():
        if named == dtype:
            return named
    raise TypeError(f"{dtype} is not an element type of arrays here")


def is_float(dtype: DType) -> bool:
    """Returns True for real floating-point types, those of ml_dtypes included."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def is_inexact(dtype: DType) -> bool:
    """Returns True for floating-point types, those of ml_dtypes included, and for complex ones."""
    return dtype.kind == "c" or is_float(dtype)

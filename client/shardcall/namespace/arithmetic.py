"""Functions that combine several elementwise functions and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.array_operators import is_root
from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods import KernelMethods
from shardcall.namespace.base import NamespaceBase, converted, is_number, namespace_of, type_of
from shardcall.namespace.integers import integer


def angle(  # with NumPy's second argument
    xp: NamespaceBase, z: OperandLike, deg: bool = False
) -> Any:
    """Returns the angle of each element, in radians or degrees, as ``numpy.angle``."""
    angle = xp.call("angle", z)
    return xp.degrees(angle) if deg else angle


def power(xp: NamespaceBase, x: OperandLike, y: OperandLike, **options: Any) -> Any:
    """Returns a power, as ``numpy.power``; options are those of `Client.power`."""
    if not is_number(x) and is_root(type_of(x).dtype, y):
        return xp.sqrt(x, **options)
    return KernelMethods.power(xp, x, y, **options)


def round(xp: NamespaceBase, x: OperandLike, decimals: int = 0) -> Any:  # noqa: A001  # NumPy's name
    """Returns an array rounded to a number of decimals, as ``numpy.round``; integers by way of float64."""
    decimals = integer("decimals", decimals)
    if (dtype := type_of(x).dtype).kind == "b" and decimals:
        raise TypeError(f"decimals={decimals}, and x is of bool, which has none; convert it")
    if dtype.kind in "iu":
        if decimals >= 0:
            return xp.copy(x)
        rounded = round(xp, xp.astype(x, np.float64), decimals)
        return xp.astype(rounded if dtype == np.uint64 else xp.astype(rounded, np.int64), dtype)
    if decimals == 0:
        return xp.rint(x)
    if dtype.kind == "c":
        return xp.call("complex", *(round(xp, part(x), decimals) for part in (xp.real, xp.imag)))
    scale = float(f"1e{abs(decimals)}")  # infinity, as NumPy's, where a power raises an error
    if decimals > 0:
        return xp.divide(xp.rint(xp.multiply(x, scale)), scale)
    return xp.multiply(xp.rint(xp.divide(x, scale)), scale)


def ptp(xp: NamespaceBase, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Returns the maximum less the minimum over axes, as ``numpy.ptp``."""
    return xp.subtract(xp.max(x, axis, keepdims=keepdims), xp.min(x, axis, keepdims=keepdims))


def count_nonzero(xp: NamespaceBase, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Returns the number of elements over axes that are not zero, as ``numpy.count_nonzero``."""
    return xp.sum(xp.not_equal(x, 0), axis, keepdims=keepdims)


def isclose(
    xp: NamespaceBase, a: OperandLike, b: OperandLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Returns where two arrays are equal within tolerances, as ``numpy.isclose``."""
    # An inexact type, in which differences of integers do not wrap around.
    y = b * 1.0 if is_number(b) else converted(xp, b, np.result_type(type_of(b).dtype, 1.0))  # type: ignore[operator]
    bound = atol + rtol * abs(y)
    near = xp.less_equal(xp.absolute(xp.subtract(a, y)), bound)
    close = xp.logical_or(xp.logical_and(near, namespace_of(xp, y).isfinite(y)), xp.equal(a, y))
    if not equal_nan:
        return close
    return xp.logical_or(close, xp.logical_and(namespace_of(xp, a).isnan(a), namespace_of(xp, y).isnan(y)))


def allclose(
    xp: NamespaceBase, a: OperandLike, b: OperandLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Returns whether two arrays are equal within tolerances; waits for the result."""
    return bool(xp.all(isclose(xp, a, b, rtol, atol, equal_nan)))


def array_equal(xp: NamespaceBase, a1: OperandLike, a2: OperandLike, equal_nan: bool = False) -> bool:
    """Returns whether two arrays have one shape and the same elements; waits for the result."""
    if type_of(a1).shape != type_of(a2).shape:
        return False
    same = xp.equal(a1, a2)
    if equal_nan:
        same = xp.logical_or(same, xp.logical_and(namespace_of(xp, a1).isnan(a1), namespace_of(xp, a2).isnan(a2)))
    return bool(xp.all(same))


def array_equiv(xp: NamespaceBase, a1: OperandLike, a2: OperandLike) -> bool:
    """Returns whether two arrays broadcast together and have the same elements; waits for the result."""
    try:
        np.broadcast_shapes(type_of(a1).shape, type_of(a2).shape)
    except ValueError:
        return False
    return bool(xp.all(xp.equal(a1, a2)))

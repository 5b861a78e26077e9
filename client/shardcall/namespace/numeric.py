"""Functions of single elements and of neighbours that combine the client's methods."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.change_targets import writing
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall._src.device_arrays.scalars import typed
from shardcall.namespace.base import NamespaceBase, array_of, converted, counted_axis, namespace_of, part_of, type_of
from shardcall.namespace.statistics import can_be_nan


def divmod(xp: NamespaceBase, x: OperandLike, y: OperandLike) -> tuple[Any, Any]:  # noqa: A001  # NumPy's name
    """Returns the quotients rounded down and the remainders, as ``numpy.divmod``."""
    return xp.floor_divide(x, y), xp.remainder(x, y)


def modf(xp: NamespaceBase, x: OperandLike) -> tuple[Any, Any]:
    """Returns the fractional and the integral parts, as ``numpy.modf``."""
    dtype = type_of(x).dtype
    result = np.modf(np.zeros(1, dtype))[0].dtype
    x = x if result == dtype else xp.astype(x, result)
    integral = xp.trunc(x)
    fraction = xp.where(xp.isinf(x), 0, xp.subtract(x, integral))
    return xp.copysign(fraction, x), integral


def fix(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns the numbers rounded towards zero, as ``numpy.fix``."""
    return xp.trunc(x)


def heaviside(xp: NamespaceBase, x1: OperandLike, x2: OperandLike) -> Any:
    """Returns 0 for negative numbers, 1 for positive ones and ``x2`` for zero, as ``numpy.heaviside``."""
    x1, x2 = typed("heaviside", (x1, x2))  # type: ignore[assignment]  # both are there
    dtype = np.heaviside(*(np.zeros(0, type_of(operand).dtype) for operand in (x1, x2))).dtype
    x, at_zero = converted(xp, x1, dtype), converted(xp, x2, dtype)
    step = xp.where(xp.less(x, 0), 0, xp.where(xp.greater(x, 0), 1, x))
    return xp.where(xp.equal(x, 0), at_zero, step)


def isneginf(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns where an array is negative infinity, as ``numpy.isneginf``."""
    return xp.equal(_real(x, "isneginf"), -math.inf)


def isposinf(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns where an array is positive infinity, as ``numpy.isposinf``."""
    return xp.equal(_real(x, "isposinf"), math.inf)


def nan_to_num(
    xp: NamespaceBase, x: OperandLike, copy: bool = True, nan: float = 0.0, posinf: float | None = None,
    neginf: float | None = None,
) -> Any:  # fmt: skip
    """Returns an array with numbers in place of NaN and infinities, as ``numpy.nan_to_num``.

    Args:
        x: [...] the array.
        copy: False to change the array, which is on the mesh, and return it.
        nan: in place of NaN.
        posinf: in place of infinity; None for the largest number of the element type.
        neginf: in place of negative infinity; None for the least number of the element type.

    Raises:
        TypeError: for an array in place of NaN that is of complex numbers, and others to replace.
        ValueError: for what is no array on the mesh and not to be copied.
    """
    if not copy:
        if find_remote_array(x) is None:
            raise ValueError("copy=False and x is not on the mesh; leave out copy=False, or put x on the mesh")
        if can_be_nan(x):
            with writing(x, "numpy.nan_to_num with copy=False") as target:
                target._assign(nan_to_num(xp, x, nan=nan, posinf=posinf, neginf=neginf))
        return x
    dtype = type_of(x).dtype
    if dtype.kind == "f" and type_of(nan).dtype.kind == "c":
        raise TypeError(f"nan is of {type_of(nan).dtype.name} and x of {dtype.name}; give real numbers")
    if not can_be_nan(x):
        return xp.copy(x)
    if type_of(x).dtype.kind == "c":
        parts = [nan_to_num(xp, part(x), nan=nan, posinf=posinf, neginf=neginf) for part in (xp.real, xp.imag)]
        return xp.call("complex", *parts)
    max_value = float(ml_dtypes.finfo(type_of(x).dtype).max)  # type: ignore[no-untyped-call]
    high = xp.where(xp.equal(x, math.inf), max_value if posinf is None else posinf, x)
    low = xp.where(xp.equal(x, -math.inf), -max_value if neginf is None else neginf, high)
    return converted(xp, xp.where(xp.isnan(x), nan, low), type_of(x).dtype)


def sinc(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns ``sin(πx) / πx``, 1 at 0, as ``numpy.sinc``."""
    y = xp.multiply(x, math.pi)
    y = xp.where(xp.equal(y, 0), float(np.finfo(type_of(y).dtype).eps), y)
    return xp.divide(xp.sin(y), y)


def cumulative_sum(
    xp: NamespaceBase, x: OperandLike, *, axis: int | None = None, dtype: npt.DTypeLike | None = None,
    include_initial: bool = False,
) -> Any:  # fmt: skip
    """Returns the running sum along an axis, as ``numpy.cumulative_sum``.

    Raises:
        ValueError: for several axes and no ``axis``.
    """
    return _cumulative(xp, xp.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    xp: NamespaceBase, x: OperandLike, *, axis: int | None = None, dtype: npt.DTypeLike | None = None,
    include_initial: bool = False,
) -> Any:  # fmt: skip
    """Returns the running product along an axis, as ``numpy.cumulative_prod``.

    Raises:
        ValueError: for several axes and no ``axis``.
    """
    return _cumulative(xp, xp.cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(
    xp: NamespaceBase, scan: Any, first: int, x: Any, axis: int | None, dtype: Any, include_initial: bool
) -> Any:
    x = x if type_of(x).ndim else namespace_of(xp, x).reshape(x, 1)
    ndim = type_of(x).ndim
    if axis is None and ndim != 1:
        raise ValueError(f"x has {ndim} axes; name the axis of the scan")
    along = 0 if axis is None else axis
    scanned = scan(x, along, dtype)
    if not include_initial:
        return scanned
    result = type_of(scanned)
    shape = [1 if i == along % ndim else size for i, size in enumerate(result.shape)]
    return xp.concatenate([np.full(shape, first, result.dtype), scanned], along)


def trapezoid(xp: NamespaceBase, y: OperandLike, x: OperandLike | None = None, dx: float = 1.0, axis: int = -1) -> Any:
    """Returns the integral along an axis by the trapezoidal rule, as ``numpy.trapezoid``.

    Args:
        y: [...] the values.
        x: [points] or [...] the coordinates, which broadcast to the values but for the axis, counted in their own
            shape; None for points with distances of ``dx``.
        dx: the distance of the points.
        axis: the axis.
    """
    ndim, along = type_of(y).ndim, axis
    axis = counted_axis(axis, ndim)
    step: Any = dx
    if x is not None:
        of_x = namespace_of(xp, x)
        step = of_x.diff(x) if type_of(x).ndim == 1 else of_x.diff(x, axis=along)
        if type_of(x).ndim == 1:
            step = of_x.reshape(step, [-1 if i == axis % ndim else 1 for i in range(ndim)])
    after, before = (part_of(y, _along(ndim, axis, part)) for part in (slice(1, None), slice(None, -1)))
    return xp.sum(xp.divide(xp.multiply(step, xp.add(after, before)), 2.0), axis)


def correlate(xp: NamespaceBase, a: OperandLike, v: OperandLike, mode: str = "valid") -> Any:
    """Returns the cross-correlation of two vectors, of which the second is conjugated, as ``numpy.correlate``.

    Args:
        a: [N] the first vector.
        v: [M] the second vector.
        mode: ``"valid"``, ``"same"`` or ``"full"``, as of `Client.convolve`.

    Raises:
        ValueError: for arrays of other than one axis or without elements.
    """
    for name, element in (("a", a), ("v", v)):
        if type_of(element).ndim != 1 or not type_of(element).shape[0]:
            raise ValueError(f"{name} is of shape {type_of(element).shape}; give an array of one axis, with elements")
    of_v, conjugate = namespace_of(xp, v), array_of(v)
    if conjugate.dtype.kind == "c":
        conjugate = of_v.conjugate(conjugate)
    if type_of(a).shape[0] < type_of(v).shape[0]:
        flipped = namespace_of(xp, a).flip(array_of(a))
        return xp.flip(xp.convolve(conjugate, flipped, mode))
    return xp.convolve(a, of_v.flip(conjugate), mode)


def ediff1d(
    xp: NamespaceBase, ary: OperandLike, to_end: OperandLike | None = None, to_begin: OperandLike | None = None
) -> Any:
    """Returns the differences of the flattened array, between other numbers, as ``numpy.ediff1d``."""
    steps, dtype = xp.diff(xp.reshape(ary, -1)), type_of(ary).dtype
    if dtype.kind == "b":
        raise TypeError("ary is of bool, which cannot be subtracted; convert it, or use diff")
    ends = [to_begin, to_end]
    for name, item in zip(("to_begin", "to_end"), ends, strict=True):
        if item is not None and not np.can_cast(type_of(item).dtype, dtype, "same_kind"):
            raise TypeError(f"{name} is of {type_of(item).dtype.name} and ary of {dtype.name}; convert one of them")
    parts = [
        None if item is None else namespace_of(xp, item).astype(namespace_of(xp, item).reshape(item, -1), dtype)
        for item in ends
    ]
    present = [part for part in (parts[0], steps, parts[1]) if part is not None]
    return xp.concatenate(present) if len(present) > 1 else steps


def unwrap(
    xp: NamespaceBase, p: OperandLike, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi
) -> Any:
    """Returns angles without jumps of more than half a period along an axis, as ``numpy.unwrap``."""
    steps = xp.diff(p, axis=axis)
    dtype = np.result_type(type_of(steps).dtype, period)
    half, is_ambiguous = (period // 2, period % 2 == 0) if dtype.kind in "iu" else (period / 2, True)
    inside = xp.add(xp.remainder(xp.add(steps, half), period), -half)
    if is_ambiguous:
        at_edge = xp.logical_and(xp.equal(inside, -half), xp.greater(steps, 0))
        inside = xp.where(at_edge, half, inside)
    jumps = xp.less(xp.absolute(steps), period / 2 if discont is None else discont)
    changes = xp.cumsum(xp.where(jumps, 0, xp.subtract(inside, steps)), axis)
    ndim = type_of(p).ndim
    first, rest = (part_of(p, _along(ndim, axis, part)) for part in (slice(0, 1), slice(1, None)))
    return xp.concatenate([xp.astype(first, dtype), xp.astype(xp.add(rest, changes), dtype)], axis)


def _along(ndim: int, axis: int, part: slice) -> tuple[slice, ...]:
    return tuple(part if i == axis % ndim else slice(None) for i in range(ndim))


def _real(x: OperandLike, name: str) -> Any:
    if type_of(x).dtype.kind == "c":
        raise TypeError(f"x is of complex numbers, and {name} takes real ones; pass the real or the imaginary part")
    return x

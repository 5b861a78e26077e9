"""Functions that create evenly spaced numbers, which the devices compute."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex, Unpack

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.namespace.base import NamespaceBase, counted_axis, value_of, weak_type
from shardcall.namespace.destinations import Destination, created, creating
from shardcall.namespace.integers import integer
from shardcall.namespace.shapes import moveaxis
from shardcall_core.types.element_types import parse_dtype


@creating
def arange(
    xp: NamespaceBase,
    start: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: npt.DTypeLike | None = None,
    **to: Unpack[Destination],
) -> Any:
    """Returns evenly spaced numbers from start, up to but without stop, as ``numpy.arange``.

    Args:
        start: the first number; the only argument is the stop, and the start then 0.
        stop: the end.
        step: the distance of neighbours, other than 0.
        dtype: the element type; None for that of the arguments.
        to: see `Destination`.
    """
    first, end, step = map(_number, (0, start, step) if stop is None else (start, stop, step))
    if not step:
        raise ZeroDivisionError("step is 0; give another")
    result_type = (
        np.result_type(np.int64, *map(np.asarray, (first, end, step))) if dtype is None else parse_dtype(dtype)
    )
    count = _count(first, end, step)
    ends = np.empty(2, result_type)
    with np.errstate(all="ignore"):
        ends[:] = first
        if count > 1:
            ends[1] = first + step
    return created(xp, "arange", ends[0, ...], ends[1, ...], to=to, size=count)


@creating
def linspace(
    xp: NamespaceBase,
    start: Any,
    stop: Any,
    num: SupportsIndex = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: npt.DTypeLike | None = None,
    axis: int = 0,
    **to: Unpack[Destination],
) -> Any:
    """Returns evenly spaced numbers from start to stop, as ``numpy.linspace``.

    Args:
        start: the first number, or an array of them.
        stop: the last number, or an array of them; with ``endpoint=False`` the one after it.
        num: how many.
        endpoint: whether the last one is stop.
        retstep: whether to return the distance of neighbours too.
        dtype: the element type; None for float64, or complex128.
        axis: the axis of the result along which they are, if start or stop is an array.
        to: see `Destination`.
    """
    count, axis = integer("num", num), integer("axis", axis)
    if count < 0:
        raise ValueError(f"num={count}; give 0 or more")
    computed_type = np.result_type(weak_type(start, "start"), weak_type(stop, "stop"), 1.0)
    first, last = (_values(bound).astype(computed_type) for bound in (start, stop))
    steps = count - 1 if endpoint else count
    with np.errstate(all="ignore"):
        delta = np.subtract(last, first, dtype=computed_type)
        step = np.asarray(delta / steps if steps > 0 else delta * np.nan)
    is_underflow = steps > 0 and bool(np.any((step == 0) & (delta != 0)))
    if first.ndim or last.ndim or is_underflow:
        result = _lines(xp, first, delta, step, count, steps, axis, to)
        if endpoint and count > 1:
            index = xp.reshape(arange(xp, count), [-1] + [1] * delta.ndim)
            result = moveaxis(xp, result, axis, 0)
            result = moveaxis(xp, xp.where(xp.equal(index, count - 1), last, result), 0, axis)
    else:
        counted_axis(axis, 1)
        operands = [np.asarray(bound, computed_type) for bound in (first, step if steps > 0 else 0)]
        operands += [np.asarray(last, computed_type)] * (endpoint and count > 1)
        result = created(xp, "linspace", *operands, to=to, size=count)
    if dtype is not None:
        requested = parse_dtype(dtype)
        result = xp.astype(xp.floor(result) if requested.kind in "iu" else result, requested)
    return (result, step[()]) if retstep else result


def _lines(
    xp: NamespaceBase, first: Any, delta: Any, step: Any, count: int, steps: int, axis: int, to: Destination
) -> Any:
    index = xp.reshape(arange(xp, count, dtype=step.dtype, **to), [-1] + [1] * delta.ndim)
    if steps <= 0:
        product = xp.multiply(index, delta)
    elif np.any(step == 0):
        product = xp.multiply(xp.divide(index, steps), delta)
    else:
        product = xp.multiply(index, step)
    return moveaxis(xp, xp.add(product, first), 0, axis)


@creating
def logspace(
    xp: NamespaceBase,
    start: Any,
    stop: Any,
    num: SupportsIndex = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: npt.DTypeLike | None = None,
    axis: int = 0,
    **to: Unpack[Destination],
) -> Any:
    """Returns numbers whose logarithms are evenly spaced, as ``numpy.logspace``.

    Args:
        start: the logarithm of the first number, or an array of them.
        stop: the logarithm of the last number, or an array of them; with ``endpoint=False`` of the one after it.
        num: how many.
        endpoint: whether the last one is stop.
        base: the base of the logarithms, or an array of them.
        dtype: the element type; None for float64, or complex128.
        axis: the axis of the result along which they are, if an argument is an array.
        to: see `Destination`.
    """
    weak_type(base, "base")
    if ndim := np.ndim(base):
        ndim = max(ndim, np.ndim(start), np.ndim(stop))
        start, stop, base = (
            values.reshape((1,) * (ndim - values.ndim) + values.shape) for values in map(_values, (start, stop, base))
        )
        base = np.expand_dims(base, axis)
    result = xp.power(base, linspace(xp, start, stop, num, endpoint, axis=axis, **to))
    return result if dtype is None else xp.astype(result, dtype)


@creating
def geomspace(
    xp: NamespaceBase,
    start: Any,
    stop: Any,
    num: SupportsIndex = 50,
    endpoint: bool = True,
    dtype: npt.DTypeLike | None = None,
    axis: int = 0,
    **to: Unpack[Destination],
) -> Any:
    """Returns numbers from start to stop of which neighbours have one ratio, as ``numpy.geomspace``.

    Args:
        start: the first number, or an array of them, other than 0.
        stop: the last number, or an array of them, other than 0; with ``endpoint=False`` the one after it.
        num: how many.
        endpoint: whether the last one is stop.
        dtype: the element type; None for that of the arguments, floating-point or complex.
        axis: the axis of the result along which they are, if start or stop is an array.
        to: see `Destination`.

    Raises:
        ValueError: for a start or stop of 0.
    """
    weak_type(start, "start"), weak_type(stop, "stop")
    count, axis, first, last = integer("num", num), integer("axis", axis), _values(start), _values(stop)
    if np.any(first == 0) or np.any(last == 0):
        raise ValueError("start or stop is 0, which has no ratio to another number; give other ones")
    computed_type = np.result_type(first, last, float(count), np.zeros((), dtype))
    first, last = np.broadcast_arrays(first.astype(computed_type), last.astype(computed_type))
    sign = np.sign(first)
    ends = [np.log10(bound / sign) for bound in (first, last)]
    result = xp.astype(logspace(xp, ends[0], ends[1], num, endpoint, **to), computed_type)
    index = xp.reshape(arange(xp, count, **to), [-1] + [1] * first.ndim)
    if endpoint and count > 1:
        result = xp.where(xp.equal(index, count - 1), last / sign, result)
    result = xp.multiply(xp.where(xp.equal(index, 0), first / sign, result), sign)
    result = result if result.dtype == computed_type else xp.astype(result, computed_type)
    result = moveaxis(xp, result, 0, axis) if axis else result
    return result if dtype is None else xp.astype(result, dtype)


def _number(value: Any) -> Any:
    array = find_remote_array(value)
    return value if array is None else array.item()


def _values(value: Any) -> Any:
    return np.asarray(value_of(value))


def _count(start: Any, stop: Any, step: Any) -> int:
    """Returns the number of elements of `numpy.arange`, computed as it does."""
    difference = stop - start
    value = difference / step
    if isinstance(value, complex | np.complexfloating):
        return max(0, min(math.ceil(value.real), math.ceil(value.imag)))
    if value == 0 and difference != 0:  # an underflow, or an infinite step
        return 0 if math.copysign(1.0, value) < 0 else 1
    if not math.isfinite(value):
        raise ValueError(f"start={start}, stop={stop} and step={step} give no number of elements; give finite ones")
    return int(max(0, math.ceil(value)))

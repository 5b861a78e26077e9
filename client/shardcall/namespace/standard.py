"""Functions with keywords of the Python array API standard beside those of the client's methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import typed
from shardcall._src.device_arrays.views import axes_in_order
from shardcall.methods import KernelMethods
from shardcall.namespace.base import (
    NamespaceBase,
    array_of,
    check_indices,
    converted,
    copied,
    counted_axis,
    is_view,
    type_of,
    value_of,
    with_axis,
)
from shardcall.namespace.destinations import check_device
from shardcall.namespace.integers import check_numbers
from shardcall.namespace.writing import check_mode, within
from shardcall_core.element_types import is_inexact
from shardcall_core.types.element_types import parse_dtype

Axes = int | Sequence[int] | None


def astype(  # with the standard's keywords
    xp: NamespaceBase,
    x: OperandLike,
    dtype: npt.DTypeLike,
    /,
    *,
    copy: bool = True,
    device: str | None = None,
    **options: Any,
) -> Any:
    """Returns the array as another element type, as ``numpy.astype``.

    Args:
        x: the array.
        dtype: the element type; None for float64.
        copy: False to return an array of this type as it is.
        device: ``"mesh"`` or None.
        options: those of `Client.astype`.
    """
    check_device({"device": device})
    dtype = np.float64 if dtype is None else dtype  # as numpy.dtype(None) is
    if not copy and isinstance(x, ArrayProperties) and x.dtype == parse_dtype(dtype):
        return x
    return KernelMethods.astype(xp, x, dtype, **options)


def reshape(
    xp: NamespaceBase,
    x: OperandLike,
    /,
    shape: SupportsIndex | Sequence[SupportsIndex],
    order: str = "C",
    *,
    copy: bool | None = None,
    **options: Any,
) -> Any:
    """Returns the elements in another shape, as ``numpy.reshape``.

    Args:
        x: the array.
        shape: the shape; one size may be -1.
        order: the sequence of the elements, as of `ravel`, without ``"K"``.
        copy: True for a result that is no view of x, False for an error where there is no view.
        options: those of `Client.reshape`.

    Raises:
        ValueError: if there must be a copy and it is not allowed.
    """
    if axes_in_order(array_of(x), order, "CFA") is None:
        result = KernelMethods.reshape(xp, x, shape, **options)
    else:
        sizes = value_of(shape)
        sizes = (sizes,) if isinstance(sizes, SupportsIndex) and not getattr(sizes, "ndim", 0) else tuple(sizes)
        result = xp.transpose(KernelMethods.reshape(xp, xp.transpose(x), sizes[::-1], **options))
    if copy is False and not is_view(result, x):
        raise ValueError(
            f"x is of shape {type_of(x).shape}, and the shape {shape} needs a copy: its elements are in this process, "
            "or in another sequence in memory; leave out copy=False"
        )
    return copied(result) if copy else result


def copy(xp: NamespaceBase, x: OperandLike, order: str = "K", **options: Any) -> Any:
    """Returns a copy of the array, as ``numpy.copy``.

    Args:
        x: the array.
        order: the sequence of the elements in memory, as of `ravel`; only `ravel` and views of the copy depend on it.
        options: those of `Client.copy`, with which the copy is in row-major order.
    """
    axes = axes_in_order(array_of(x), order)
    if axes is None or options:
        return KernelMethods.copy(xp, x, **options)
    return xp.transpose(KernelMethods.copy(xp, xp.transpose(x, axes)), np.argsort(axes).tolist())


def sort(
    xp: NamespaceBase, x: OperandLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True,
    **options: Any,
) -> Any:  # fmt: skip
    """Returns the array sorted along an axis, as ``numpy.sort``.

    Args:
        x: the array.
        axis: the axis; None for the flattened array.
        descending: whether to begin with the greatest elements; NaN is last all the same.
        stable: has no effect: equal elements keep their sequence.
        options: those of `Client.sort`.
    """
    del stable
    if descending and is_inexact(type_of(x).dtype):
        return xp.negative(KernelMethods.sort(xp, xp.negative(x), axis, **options))
    result = KernelMethods.sort(xp, x, axis, **options)
    return xp.flip(result, -1 if axis is None else axis) if descending else result


def argsort(
    xp: NamespaceBase, x: OperandLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True,
    **options: Any,
) -> Any:  # fmt: skip
    """Returns the indices that sort an array along an axis, as ``numpy.argsort``; arguments are those of `sort`."""
    del stable
    x = with_axis(xp, x, axis)
    if not descending:
        return KernelMethods.argsort(xp, x, axis, **options)
    if is_inexact(type_of(x).dtype):
        return KernelMethods.argsort(xp, xp.negative(x), axis, **options)
    x, axis = (KernelMethods.reshape(xp, x, -1), -1) if axis is None else (x, axis)
    shape = type_of(x).shape
    # The indices in the flipped array, counted from its end, so that equal elements keep their sequence.
    reversed_ = KernelMethods.argsort(xp, xp.flip(x, axis), axis, **options)
    return xp.subtract(shape[axis] - 1, xp.flip(reversed_, axis))


def var(
    xp: NamespaceBase, x: OperandLike, /, axis: Axes = None, *, dtype: npt.DTypeLike | None = None, ddof: float = 0,
    correction: float | None = None, keepdims: bool = False, where: OperandLike | None = None,
    mean: OperandLike | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Returns the variance over axes, as ``numpy.var``.

    Args:
        x: the array.
        axis: the axes; None for all.
        dtype: the floating-point or complex type of the result, in which it is computed if it is the wider one.
        ddof: what is subtracted from the number of elements; ``correction`` is its other name.
        correction: the same; None for ``ddof``.
        keepdims: whether the axes stay, with a size of 1.
        where: the elements to compute with; None for all.
        mean: the mean, which broadcasts with the array; None to compute it.
        options: those of `Client.var`.

    Raises:
        ValueError: for both ``ddof`` and ``correction``.
        TypeError: for a real ``dtype`` and complex numbers, whose mean NumPy computes without the imaginary parts.
    """
    freedom = degrees_taken(ddof, correction)
    if mean is not None:
        return _about_mean(xp, x, mean, axis, dtype, freedom, keepdims, where)
    return _in_type(xp, KernelMethods.var, x, axis, dtype, ddof=freedom, keepdims=keepdims, where=where, **options)


def std(
    xp: NamespaceBase, x: OperandLike, /, axis: Axes = None, *, dtype: npt.DTypeLike | None = None, ddof: float = 0,
    correction: float | None = None, keepdims: bool = False, where: OperandLike | None = None,
    mean: OperandLike | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Returns the standard deviation over axes, as ``numpy.std``; arguments are those of `var`."""
    freedom = degrees_taken(ddof, correction)
    if mean is not None:
        return xp.sqrt(_about_mean(xp, x, mean, axis, dtype, freedom, keepdims, where))
    return _in_type(xp, KernelMethods.std, x, axis, dtype, ddof=freedom, keepdims=keepdims, where=where, **options)


def _in_type(
    xp: NamespaceBase, function: Callable[..., Any], x: OperandLike, axis: Axes, dtype: npt.DTypeLike | None, **how: Any
) -> Any:
    """Runs a function with its result in a floating-point type, in which it computes if it is the wider one."""
    if dtype is None:
        return function(xp, x, axis, **how)
    array_dtype, requested = type_of(x).dtype, parse_dtype(dtype)
    if array_dtype.kind == "c" and requested.kind != "c":
        raise TypeError(f"dtype={requested.name} loses the imaginary part of {array_dtype.name}; give a complex type")
    if not is_inexact(requested):
        raise TypeError(
            f"dtype={requested.name} and x is of {array_dtype.name}; give a floating-point type, for real numbers"
        )
    return xp.astype(function(xp, xp.astype(x, np.result_type(array_dtype, requested)), axis, **how), requested)


def mean(
    xp: NamespaceBase, x: OperandLike, axis: Axes = None, dtype: npt.DTypeLike | None = None, *,
    keepdims: bool = False, where: OperandLike | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Returns the mean over axes, as ``numpy.mean``.

    Args:
        x: the array.
        axis: the axes; None for all.
        dtype: the element type of the result; of integers and bool, the sum in the type is divided, and its fraction
            left out. None for that of x, and float64 for integers.
        keepdims: whether the axes stay, with a size of 1.
        where: the elements to compute with; None for all.
        options: those of `Client.mean`.
    """
    if dtype is None or is_inexact(parse_dtype(dtype)) or options:
        return KernelMethods.mean(xp, x, axis, dtype, keepdims=keepdims, where=where, **options)
    result = parse_dtype(dtype)
    total = xp.sum(converted(xp, x, result), axis, result, keepdims=keepdims, where=where)
    quotient = xp.divide(total, _count(xp, x, axis, keepdims, where))
    return xp.not_equal(quotient, 0) if result.kind == "b" else xp.astype(quotient, result)


def degrees_taken(ddof: float, correction: Any) -> float:
    """Returns what is subtracted from the number of elements, which has two names.

    Raises:
        ValueError: for both.
    """
    if correction is None:
        return ddof
    if ddof:
        raise ValueError(f"ddof={ddof} and correction={correction}, which is its other name; give one of them")
    return correction  # type: ignore[no-any-return]


def _about_mean(
    xp: NamespaceBase, x: OperandLike, mean: OperandLike, axis: Axes, dtype: npt.DTypeLike | None, freedom: float,
    keepdims: bool, where: OperandLike | None,
) -> Any:  # fmt: skip
    """Returns the variance about a mean that is given."""
    if dtype is not None and not is_inexact(parse_dtype(dtype)):
        raise TypeError(f"dtype={parse_dtype(dtype).name} does not hold a variance; give a floating-point type")
    apart = xp.subtract(x, mean)
    squares = xp.square(apart)
    if type_of(apart).dtype.kind == "c":
        squares = xp.add(xp.square(xp.real(apart)), xp.square(xp.imag(apart)))
    in_float = np.float64 if squares.dtype.kind in "biu" else None
    total = xp.sum(squares, axis, in_float, keepdims=keepdims, where=where)
    divisor = xp.maximum(xp.subtract(_count(xp, x, axis, keepdims, where), freedom), 0)
    quotient = xp.astype(xp.divide(total, divisor), type_of(total).dtype)
    return quotient if dtype is None else xp.astype(quotient, dtype)


def _count(xp: NamespaceBase, x: OperandLike, axis: Axes, keepdims: bool, where: OperandLike | None) -> Any:
    """Returns how many elements a reduction takes."""
    ones = xp.logical_or(x, True)
    return xp.sum(ones, axis, np.int64, keepdims=keepdims, where=where)


def nextafter(xp: NamespaceBase, x1: OperandLike, x2: OperandLike, /, **options: Any) -> Any:
    """Returns the next number from each element of x1 towards that of x2, as ``numpy.nextafter``."""
    return xp.call("nextafter", *typed("nextafter", (x1, x2)), **options)


def repeat(xp: NamespaceBase, x: OperandLike, repeats: Any, /, axis: int | None = None, **options: Any) -> Any:
    """Returns each element several times, as ``numpy.repeat``.

    Args:
        x: the array.
        repeats: how many times, or an array with a number for each element along the axis. The size of the result
            depends on its values; an array on the mesh is copied, which counts as an implicit copy.
        axis: the axis; None for the flattened array.
        options: those of `Client.repeat`, for one number.
    """
    here = value_of(repeats)
    counts = np.asarray(here)
    check_numbers("repeats", counts)
    is_typed = isinstance(here, np.ndarray | np.generic)
    if is_typed and not np.can_cast(counts.dtype, np.int64, "safe"):
        raise TypeError(f"repeats is of {counts.dtype.name}; give integers")
    if counts.dtype.kind == "c":
        raise TypeError("repeats is a complex number; give an integer")
    counts = counts.astype(np.int64)
    x = with_axis(xp, x, axis)
    if counts.ndim == 0:
        return KernelMethods.repeat(xp, x, int(counts), axis, **options)
    x, axis = (KernelMethods.reshape(xp, x, -1), 0) if axis is None else (x, counted_axis(axis, type_of(x).ndim))
    indices = np.repeat(np.arange(type_of(x).shape[axis]), counts)
    return xp.take(x, indices, axis=axis)


def gradient(
    xp: NamespaceBase, x: OperandLike, *spacing: OperandLike, axis: Any = None, edge_order: int = 1, **options: Any
) -> Any:
    """Returns the derivative along axes, as ``numpy.gradient``; options are those of `Client.gradient`.

    An array without axes has none, nor are there any along no axes.
    """
    is_empty = not type_of(x).ndim if axis is None else isinstance(axis, tuple) and not axis
    return () if is_empty else KernelMethods.gradient(xp, x, *spacing, axis=axis, edge_order=edge_order, **options)


def take(
    xp: NamespaceBase,
    x: OperandLike,
    indices: OperandLike,
    axis: SupportsIndex | None = None,
    *,
    mode: str = "raise",
    **options: Any,
) -> Any:
    """Returns the elements at indices along an axis, as ``numpy.take``.

    Args:
        x: the array.
        indices: integers.
        axis: the axis; None for the flattened array.
        mode: what becomes of indices that there are not: ``"raise"``, ``"wrap"`` or ``"clip"``, which takes the first
            element for negative ones.
        options: those of `Client.take`.

    Raises:
        IndexError: for indices of this process that there are not; for those on the mesh when the result is read.
        ValueError: for another mode.
    """
    check_mode(mode)
    here = array_of(np.int64(int(indices)) if isinstance(indices, float | complex) else indices)  # type: ignore[call-overload]
    check_numbers("indices", here)
    if here.dtype.kind == "b" or not isinstance(indices, ArrayProperties | np.ndarray | np.generic):
        here = converted(xp, here, np.dtype(np.int64))  # an empty list, too, as NumPy does
    x = with_axis(xp, x, axis)
    shape = type_of(x).shape
    size = math.prod(shape) if axis is None else shape[counted_axis(axis, len(shape))]
    if math.prod(here.shape) and not size:
        raise IndexError(f"x is of shape {shape}, without elements along the axis; take none from it")
    here = within(xp, here, size, mode) if size else here
    return KernelMethods.take(xp, x, here, axis, **options)


def take_along_axis(
    xp: NamespaceBase, x: OperandLike, indices: OperandLike, axis: SupportsIndex | None = -1, **options: Any
) -> Any:
    """Returns the elements at indices along an axis, others for each row, as ``numpy.take_along_axis``.

    Args:
        x: the array.
        indices: integers, of as many axes.
        axis: the axis; None for the flattened array.
        options: those of `Client.take_along_axis`.

    Raises:
        IndexError: for indices that are no integers.
    """
    check_indices(indices)
    if axis is None and type_of(indices).ndim != 1:
        raise ValueError(f"indices is of shape {type_of(indices).shape} and axis=None; give indices of one axis")
    x, axis = (KernelMethods.reshape(xp, x, -1), 0) if axis is None else (x, axis)
    return KernelMethods.take_along_axis(xp, x, indices, axis, **options)


def squeeze(xp: NamespaceBase, x: OperandLike, axis: Axes = None, **options: Any) -> Any:
    """Returns the array without axes of size 1, as ``numpy.squeeze``; options are those of `Client.squeeze`."""
    if isinstance(axis, SupportsIndex) and not type_of(x).ndim:
        counted_axis(axis, 1)
        axis = None
    return KernelMethods.squeeze(xp, x, axis, **options)


def expand_dims(xp: NamespaceBase, x: OperandLike, axis: int | Sequence[int], **options: Any) -> Any:
    """Returns the array with new axes of size 1, as ``numpy.expand_dims``; options are of `Client.expand_dims`."""
    if axis is None:
        raise TypeError("axis=None; give the position of the new axis, or several")
    return KernelMethods.expand_dims(xp, x, axis, **options)

"""Reductions over axes, with NumPy's element types.

Over sharded axes the strategy ``all_reduce`` moves only each device's part of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, SupportsIndex, TypeVar, Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import typed_initial
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Outcome, kernel_method
from shardcall_core.types.element_types import dtype_name

P = ParamSpec("P")
R = TypeVar("R")
Axes = SupportsIndex | Sequence[SupportsIndex] | None


def _mask(where: OperandLike | None) -> OperandLike | None:
    return None if where is True else where  # NumPy's default


_ARGUMENTS = {
    "x": "[...] the array.",
    "axis": "the axis or axes, of `argmax` and `argmin` one; negative ones count from the last, None for all.",
    "dtype": "the element type of the result; None for NumPy's.",
    "ddof": "the divisor is the number of elements less this number.",
    "keepdims": "keep the reduced axes, of size 1.",
    "initial": "a scalar to begin with; required for `max` and `min` with ``where``.",
    "where": "a mask that broadcasts to ``x``; elements where it is false are left out.",
}


def _documented(function: Callable[P, R]) -> Callable[P, R]:
    """Adds to a docstring the meanings of the parameters."""
    if function.__doc__ is not None:  # as with python -OO
        lines = [f"    {name}: {_ARGUMENTS[name]}" for name in function.__annotations__ if name in _ARGUMENTS]
        function.__doc__ = "\n".join([function.__doc__, "", "Args:", *lines, "    options: see `ArrayOptions`."])
    return function


@kernel_method
@_documented
def sum(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    dtype: npt.DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: OperandLike | None = None,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the sum, as ``numpy.sum``."""
    result = dtype_name(dtype)
    operands = x, _mask(where), typed_initial("sum", x, result, initial)
    return self._named("sum", *operands, axis=axis, keepdims=keepdims, dtype=result, options=options)


@kernel_method
@_documented
def prod(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    dtype: npt.DTypeLike | None = None,
    *,
    keepdims: bool = False,
    initial: OperandLike | None = None,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the product, as ``numpy.prod``."""
    result = dtype_name(dtype)
    operands = x, _mask(where), typed_initial("prod", x, result, initial)
    return self._named("prod", *operands, axis=axis, keepdims=keepdims, dtype=result, options=options)


@kernel_method
@_documented
def mean(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    dtype: npt.DTypeLike | None = None,
    *,
    keepdims: bool = False,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the mean, as ``numpy.mean``."""
    return self._named("mean", x, _mask(where), axis=axis, keepdims=keepdims, dtype=dtype_name(dtype), options=options)


@kernel_method
@_documented
def var(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    ddof: float | SupportsIndex = 0,
    *,
    keepdims: bool = False,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the variance, as ``numpy.var``."""
    return self._named("var", x, _mask(where), axis=axis, keepdims=keepdims, ddof=ddof, options=options)


@kernel_method
@_documented
def std(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    ddof: float | SupportsIndex = 0,
    *,
    keepdims: bool = False,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the standard deviation, as ``numpy.std``."""
    return self._named("std", x, _mask(where), axis=axis, keepdims=keepdims, ddof=ddof, options=options)


@kernel_method
@_documented
def max(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: OperandLike | None = None,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the largest element, as ``numpy.max``; NaN if there is one."""
    operands = x, _mask(where), typed_initial("max", x, None, initial)
    return self._named("max", *operands, axis=axis, keepdims=keepdims, options=options)


@kernel_method
@_documented
def min(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    initial: OperandLike | None = None,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the smallest element, as ``numpy.min``; NaN if there is one."""
    operands = x, _mask(where), typed_initial("min", x, None, initial)
    return self._named("min", *operands, axis=axis, keepdims=keepdims, options=options)


@kernel_method
@_documented
def argmax(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: SupportsIndex | None = None,
    *,
    keepdims: bool = False,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the index of the first of the largest elements, or of the first NaN, as ``numpy.argmax``."""
    return self._named("argmax", x, axis=axis, keepdims=keepdims, options=options)


@kernel_method
@_documented
def argmin(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: SupportsIndex | None = None,
    *,
    keepdims: bool = False,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the index of the first of the smallest elements, or of the first NaN, as ``numpy.argmin``."""
    return self._named("argmin", x, axis=axis, keepdims=keepdims, options=options)


@kernel_method
@_documented
def any(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns True if an element is true, as ``numpy.any``."""
    return self._named("any", x, _mask(where), axis=axis, keepdims=keepdims, options=options)


@kernel_method
@_documented
def all(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    where: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns True if all elements are true, as ``numpy.all``."""
    return self._named("all", x, _mask(where), axis=axis, keepdims=keepdims, options=options)

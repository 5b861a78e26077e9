"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, SupportsIndex, Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import typed_initial
from shardcall.methods.calling import ArrayOptions, Calling
from shardcall.methods.kernel_method import Outcome, kernel_method
from shardcall_core.types.element_types import dtype_name

Axes = SupportsIndex | Sequence[SupportsIndex] | None


def _mask(where: OperandLike | None) -> OperandLike | None:
    return None if where is True else where  # NumPy's default


class Reductions(Calling[Outcome]):
    """Reductions over axes, with NumPy's element types.

    Over sharded axes the strategy ``all_reduce`` moves only each device's part of the result.
    """

    _ARGUMENTS: ClassVar[Mapping[str, str]] = {
        "x": "[...] the array.",
        "axis": "the axis or axes, of `argmax` and `argmin` one; negative ones count from the last, None for all.",
        "dtype": "the element type of the result; None for NumPy's.",
        "ddof": "the divisor is the number of elements less this number.",
        "keepdims": "keep the reduced axes, of size 1.",
        "initial": "a scalar to begin with; required for `max` and `min` with ``where``.",
        "where": "a mask that broadcasts to ``x``; elements where it is false are left out.",
    }

    @kernel_method
    def sum(
        self,
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
    def prod(
        self,
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
    def mean(
        self,
        x: OperandLike,
        axis: Axes = None,
        dtype: npt.DTypeLike | None = None,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the mean, as ``numpy.mean``."""
        return self._named(
            "mean", x, _mask(where), axis=axis, keepdims=keepdims, dtype=dtype_name(dtype), options=options
        )

    @kernel_method
    def var(
        self,
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
    def std(
        self,
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
    def max(
        self,
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
    def min(
        self,
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
    def argmax(
        self,
        x: OperandLike,
        axis: SupportsIndex | None = None,
        *,
        keepdims: bool = False,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the index of the first of the largest elements, or of the first NaN, as ``numpy.argmax``."""
        return self._named("argmax", x, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def argmin(
        self,
        x: OperandLike,
        axis: SupportsIndex | None = None,
        *,
        keepdims: bool = False,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns the index of the first of the smallest elements, or of the first NaN, as ``numpy.argmin``."""
        return self._named("argmin", x, axis=axis, keepdims=keepdims, options=options)

    @kernel_method
    def any(
        self,
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
    def all(
        self,
        x: OperandLike,
        axis: Axes = None,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Returns True if all elements are true, as ``numpy.all``."""
        return self._named("all", x, _mask(where), axis=axis, keepdims=keepdims, options=options)

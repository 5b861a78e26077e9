"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.element_types import parse_dtype
from shardcall.methods.calling import ArrayOptions, Calling, Outcome
from shardcall.methods.scalars import begun

Axes = SupportsIndex | Sequence[SupportsIndex] | None


def _name(dtype: npt.DTypeLike | None) -> str | None:
    return None if dtype is None else parse_dtype(dtype).name


def _mask(where: OperandLike | None) -> OperandLike | None:
    return None if where is True else where  # NumPy's default


class Reductions(Calling[Outcome]):
    """Reductions over axes.

    All take ``x``, the array; ``axis``, one or several, None for all; ``keepdims``, whether they stay, of size 1; and
    `shardcall.methods.calling.ArrayOptions`. Where NumPy's take them, ``where`` tells which elements count and
    broadcasts to ``x``, and ``initial`` is what the reduction begins with, a number. The result is split as ``x``,
    without the axes, unless told. Where they are split, the strategy ``all_reduce`` moves only the devices' parts of
    the result.
    """

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
        """The sum, as ``numpy.sum``; ``dtype`` is its element type, None for NumPy's."""
        result = _name(dtype)
        operands = x, _mask(where), begun("sum", x, result, initial)
        return self._named("sum", *operands, axis=axis, keepdims=keepdims, dtype=result, options=options)

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
        """The product, as ``numpy.prod``; ``dtype`` is its element type, None for NumPy's."""
        result = _name(dtype)
        operands = x, _mask(where), begun("prod", x, result, initial)
        return self._named("prod", *operands, axis=axis, keepdims=keepdims, dtype=result, options=options)

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
        """The mean, as ``numpy.mean``; ``dtype`` is its element type, None for NumPy's."""
        return self._named("mean", x, _mask(where), axis=axis, keepdims=keepdims, dtype=_name(dtype), options=options)

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
        """The variance, as ``numpy.var``; the sum is divided by the number of elements less ``ddof``."""
        return self._named("var", x, _mask(where), axis=axis, keepdims=keepdims, ddof=ddof, options=options)

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
        """The standard deviation, as ``numpy.std``; ``ddof`` as for `var`."""
        return self._named("std", x, _mask(where), axis=axis, keepdims=keepdims, ddof=ddof, options=options)

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
        """The largest element, as ``numpy.max``; NaN where there is one."""
        operands = x, _mask(where), begun("max", x, None, initial)
        return self._named("max", *operands, axis=axis, keepdims=keepdims, options=options)

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
        """The smallest element, as ``numpy.min``; NaN where there is one."""
        operands = x, _mask(where), begun("min", x, None, initial)
        return self._named("min", *operands, axis=axis, keepdims=keepdims, options=options)

    def argmax(
        self,
        x: OperandLike,
        axis: SupportsIndex | None = None,
        *,
        keepdims: bool = False,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Where the first of the largest elements is, or the first NaN, as ``numpy.argmax``; one axis or None."""
        return self._named("argmax", x, axis=axis, keepdims=keepdims, options=options)

    def argmin(
        self,
        x: OperandLike,
        axis: SupportsIndex | None = None,
        *,
        keepdims: bool = False,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Where the first of the smallest elements is, or the first NaN, as ``numpy.argmin``; one axis or None."""
        return self._named("argmin", x, axis=axis, keepdims=keepdims, options=options)

    def any(
        self,
        x: OperandLike,
        axis: Axes = None,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Whether an element is true, as ``numpy.any``."""
        return self._named("any", x, _mask(where), axis=axis, keepdims=keepdims, options=options)

    def all(
        self,
        x: OperandLike,
        axis: Axes = None,
        *,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """Whether all elements are true, as ``numpy.all``."""
        return self._named("all", x, _mask(where), axis=axis, keepdims=keepdims, options=options)

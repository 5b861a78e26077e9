"""Differences, shifts and derivatives along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Outcome, kernel_method


@kernel_method
def diff(
    self: KernelCaller[Outcome],
    x: OperandLike,
    n: int = 1,
    axis: int = -1,
    prepend: OperandLike | None = None,
    append: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the n-th difference along an axis, as ``numpy.diff``.

    Args:
        x: [..., size, ...] the array.
        n: the order of the difference, 0 or more; 0 returns ``x``.
        axis: the axis; negative axes count from the last.
        prepend: rows before ``x`` along the axis: an array, or a scalar for one row; a Python float is a float64,
            as in NumPy.
        append: rows after ``x`` along the axis, likewise.
        options: see `ArrayOptions`.
    """
    return self._named("diff", x, prepend, append, n=n, axis=axis, options=options)


@kernel_method
def shift(
    self: KernelCaller[Outcome],
    x: OperandLike,
    shift: int | Sequence[int],
    axis: int | Sequence[int] = -1,
    fill: OperandLike | None = None,
    mode: Literal["fill", "periodic"] = "fill",
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns ``x`` with its rows moved along axes: row ``i`` is row ``i - shift`` of ``x``.

    Args:
        x: [..., size, ...] the array.
        shift: the number of rows, for all axes or for each; negative towards the first row.
        axis: the axis or axes; negative ones count from the last.
        fill: the scalar of rows that no row moves to, of a kind that ``x`` can hold; None for 0.
        mode: ``"fill"``, or ``"periodic"``, which moves the last rows to the first ones as ``numpy.roll``.
        options: see `ArrayOptions`.
    """
    return self._named("shift", x, fill, shift=shift, axis=axis, mode=mode, options=options)


@kernel_method
def roll(
    self: KernelCaller[Outcome],
    x: OperandLike,
    shift: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns ``x`` with its elements moved periodically along axes, as ``numpy.roll``.

    Args:
        x: [..., size, ...] the array.
        shift: the number of rows, for all axes or for each; negative towards the first row.
        axis: the axis or axes; None moves the elements of the flattened array and restores its shape.
        options: see `ArrayOptions`.
    """
    return self._named("roll", x, shift=_within_64_bits(shift, x), axis=axis, options=options)


@kernel_method
def gradient(
    self: KernelCaller[Outcome],
    x: OperandLike,
    *spacing: OperandLike,
    axis: int | Sequence[int] | None = None,
    edge_order: int = 1,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the derivative along each of several axes, as ``numpy.gradient``: one result for each axis.

    Args:
        x: [...] the array.
        spacing: none for steps of 1, a scalar for all axes, or for each axis a scalar or its coordinates [size].
        axis: the axis or axes; None for all.
        edge_order: the order of accuracy of the one-sided differences at the boundaries, 1 or 2.
        options: see `ArrayOptions`.
    """
    return self._named("gradient", x, *spacing, axis=_axes(axis), edge_order=edge_order, options=options)


@kernel_method
def laplacian(
    self: KernelCaller[Outcome],
    x: OperandLike,
    *spacing: OperandLike,
    axes: int | Sequence[int] | None = None,
    boundary: Literal["periodic", "zero", "edge"] = "periodic",
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the sum over axes of ``x[i - 1] - 2 * x[i] + x[i + 1]``.

    Args:
        x: [...] the array.
        spacing: none for steps of 1, a scalar for all axes, or one for each; its square divides the axis's term.
        axes: the axis or axes; None for all.
        boundary: the values outside ``x``: its periodic continuation, zeros, or its outermost rows.
        options: see `ArrayOptions`.
    """
    return self._named("laplacian", x, *spacing, axes=_axes(axes), boundary=boundary, options=options)


def _within_64_bits(shift: int | Sequence[int], x: OperandLike) -> int | Sequence[int]:
    """Returns shifts with those beyond 64 bits taken modulo the number of elements, a multiple of every axis's size."""
    if isinstance(shift, list | tuple):
        return [_within_64_bits(single, x) for single in shift]  # type: ignore[misc]  # of single shifts
    if not isinstance(shift, int | np.integer) or -(2**63) <= shift < 2**63:
        return shift
    shape = getattr(x, "shape", None) or np.shape(x)  # type: ignore[arg-type]
    return int(shift) % max(math.prod(map(int, shape)), 1)


def _axes(axes: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    return tuple(axes) if isinstance(axes, Sequence) else axes

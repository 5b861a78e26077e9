"""Differences along an axis, and their family."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.calling import ArrayOptions, Calling, Outcome


class Differences(Calling[Outcome]):
    """Differences along an axis, and their family."""

    def diff(
        self,
        x: OperandLike,
        n: int = 1,
        axis: int = -1,
        prepend: OperandLike | None = None,
        append: OperandLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """The n-th difference along an axis, as ``numpy.diff``.

        Args:
            x: [..., size, ...] the array.
            n: how often to take the difference, 0 or more.
            axis: along which axis.
            prepend: a scalar or array that comes before ``x`` along the axis; a Python float is a float64, as
                in NumPy.
            append: likewise, after it.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("diff", x, prepend, append, n=n, axis=axis, options=options)

    def shift(
        self,
        x: OperandLike,
        shift: int | Sequence[int],
        axis: int | Sequence[int] = -1,
        fill: OperandLike | None = None,
        mode: Literal["fill", "periodic"] = "fill",
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """The array with its rows moved along axes: row ``i`` of it is row ``i - shift`` of ``x``.

        Args:
            x: [..., size, ...] the array.
            shift: by how many rows, for all axes or for each; negative towards the first.
            axis: along which axis or axes.
            fill: a scalar for the rows that nothing moves to, of a kind that ``x`` can hold; 0 if left out.
            mode: ``"fill"``, or ``"periodic"`` for ``numpy.roll``.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("shift", x, fill, shift=shift, axis=axis, mode=mode, options=options)

    def roll(
        self,
        x: OperandLike,
        shift: int | Sequence[int],
        axis: int | Sequence[int] | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """The array with its elements moved round along axes, as ``numpy.roll``.

        Args:
            x: [..., size, ...] the array.
            shift: by how many rows, for all axes or for each; negative towards the first.
            axis: along which axis or axes; None flattens ``x`` first, and gives the result x's shape.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("roll", x, shift=_within_64_bits(shift, x), axis=axis, options=options)

    def gradient(
        self,
        x: OperandLike,
        *spacing: OperandLike,
        axis: int | Sequence[int] | None = None,
        edge_order: int = 1,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """The derivative along one or more axes, as ``numpy.gradient``: one result for each axis.

        Args:
            x: [...] the array.
            spacing: nothing for steps of 1, a scalar for all axes, or for each a scalar or the coordinates along it.
            axis: along which axis or axes; all if left out.
            edge_order: the order of the one-sided differences at the ends, 1 or 2.
            options: as of `shardcall.methods.calling.ArrayOptions` but for ``out_spec``; results are split as ``x``.
        """
        return self._named("gradient", x, *spacing, axis=_axes(axis), edge_order=edge_order, options=options)

    def laplacian(
        self,
        x: OperandLike,
        *spacing: OperandLike,
        axes: int | Sequence[int] | None = None,
        boundary: Literal["periodic", "zero", "edge"] = "periodic",
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """The sum over axes of ``x[i - 1] - 2 * x[i] + x[i + 1]``.

        Args:
            x: [...] the array.
            spacing: nothing for steps of 1, a scalar for all axes, or one for each: its square divides the axis's term.
            axes: over which axis or axes; all if left out.
            boundary: what lies outside ``x``: ``x`` again, zeros, or its outermost rows again.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("laplacian", x, *spacing, axes=_axes(axes), boundary=boundary, options=options)


def _within_64_bits(shift: int | Sequence[int], x: OperandLike) -> int | Sequence[int]:
    """A shift, or one for each axis, each that no parameter holds taken modulo the number of x's elements.

    That number is a multiple of the length of every axis.
    """
    if isinstance(shift, list | tuple):
        return [_within_64_bits(each, x) for each in shift]  # type: ignore[misc]  # of single shifts
    if not isinstance(shift, int | np.integer) or -(2**63) <= shift < 2**63:
        return shift
    shape = getattr(x, "shape", None) or np.shape(x)  # type: ignore[arg-type]
    return int(shift) % max(math.prod(map(int, shape)), 1)


def _axes(axes: int | Sequence[int] | None) -> int | tuple[int, ...] | None:
    return tuple(axes) if isinstance(axes, Sequence) else axes

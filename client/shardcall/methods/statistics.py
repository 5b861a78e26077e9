"""Running products, positions among sorted numbers, and interpolation."""

from __future__ import annotations

from typing import Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Outcome, kernel_method
from shardcall_core.types.element_types import dtype_name


@kernel_method
def cumprod(
    self: KernelCaller[Outcome], x: OperandLike, axis: int | None = None, dtype: npt.DTypeLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:  # fmt: skip
    """Returns the running product along an axis, as ``numpy.cumprod``.

    Args:
        x: [..., size, ...] the array.
        axis: the axis; None flattens ``x`` first.
        dtype: the element type of the products; None for that of ``x``, or 64 bits for shorter integers.
        options: see `ArrayOptions`.
    """
    return self._named("cumprod", x, axis=axis, dtype=dtype_name(dtype), options=options)


@kernel_method
def searchsorted(
    self: KernelCaller[Outcome], a: OperandLike, v: OperandLike, side: str = "left", **options: Unpack[ArrayOptions]
) -> Outcome:
    """Returns the positions at which numbers keep a sorted array sorted, as ``numpy.searchsorted``.

    Args:
        a: [size] the sorted array, replicated over the devices.
        v: [...] the numbers.
        side: the position among equal numbers, ``"left"`` or ``"right"`` of them.
        options: see `ArrayOptions`.
    """
    return self._named("searchsorted", a, v, side=side, options=options)


@kernel_method
def interp(
    self: KernelCaller[Outcome], x: OperandLike, xp: OperandLike, fp: OperandLike,
    left: OperandLike | None = None, right: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:  # fmt: skip
    """Returns the values of a function that is linear between points, as ``numpy.interp``.

    Args:
        x: [...] where to evaluate the function.
        xp: [points] the coordinates, ascending, replicated over the devices.
        fp: [points] the values.
        left: [] the value left of all points; None for the first one.
        right: [] the value right of all points; None for the last one.
        options: see `ArrayOptions`.
    """
    return self._named("interp", x, xp, fp, left, right, options=options)

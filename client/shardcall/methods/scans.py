"""Running and windowed sums along an axis."""

from __future__ import annotations

from typing import SupportsIndex, Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import row
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Outcome, kernel_method
from shardcall_core.types.element_types import dtype_name


@kernel_method
def cumsum(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axis: int | None = None,
    dtype: npt.DTypeLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the running sum along an axis, as ``numpy.cumsum``.

    Args:
        x: [..., size, ...] the array.
        axis: the axis; None flattens ``x`` first.
        dtype: the element type of the sums; None for that of ``x``, or 64 bits for shorter integers.
        options: see `ArrayOptions`.
    """
    return self._named("cumsum", x, axis=axis, dtype=dtype_name(dtype), options=options)


@kernel_method
def convolve(
    self: KernelCaller[Outcome],
    x: OperandLike,
    v: OperandLike,
    mode: str | SupportsIndex = "full",
    axis: int = -1,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the convolution with a window along an axis, as ``numpy.convolve`` of each row.

    Args:
        x: [..., size, ...] the array; a number stands for an array of one element.
        v: [length] the window, replicated over the devices; a number stands for an array of one element.
        mode: ``"full"`` returns size + length - 1 rows, ``"same"`` max(size, length), ``"valid"`` those where the
            shorter of both is covered; or 2, 1 or 0, as in NumPy.
        axis: the axis of ``x``; negative axes count from the last.
        options: see `ArrayOptions`.
    """
    return self._named("convolve", row(x), row(v), mode=mode, axis=axis, options=options)

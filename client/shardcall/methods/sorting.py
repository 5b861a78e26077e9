"""Functions that sort arrays and take elements at indices; every bit is kept."""

from __future__ import annotations

from typing import SupportsIndex, Unpack

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Outcome, kernel_method


@kernel_method
def sort(
    self: KernelCaller[Outcome], x: OperandLike, axis: SupportsIndex | None = -1, **options: Unpack[ArrayOptions]
) -> Outcome:
    """Returns the elements in ascending order along an axis, NaN last, as ``numpy.sort``.

    Args:
        x: [...] the array.
        axis: the axis; negative axes count from the last, None flattens ``x``.
        options: see `ArrayOptions`.
    """
    return self._named("sort", x, axis=axis, options=options)


@kernel_method
def argsort(
    self: KernelCaller[Outcome], x: OperandLike, axis: SupportsIndex | None = -1, **options: Unpack[ArrayOptions]
) -> Outcome:
    """Returns the indices that sort an axis, as ``numpy.argsort`` with ``stable=True``.

    Args:
        x: [...] the array.
        axis: the axis; negative axes count from the last, None flattens ``x``.
        options: see `ArrayOptions`.
    """
    return self._named("argsort", x, axis=axis, options=options)


@kernel_method
def take(
    self: KernelCaller[Outcome],
    x: OperandLike,
    indices: OperandLike,
    axis: SupportsIndex | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the elements at indices along an axis, as ``numpy.take``.

    Args:
        x: [...] the array.
        indices: [...] integers; negative ones count from the last element.
        axis: the axis; negative axes count from the last, None flattens ``x``.
        options: see `ArrayOptions`.

    Raises:
        IndexOutOfRangeError: for an index that there is not.
    """
    return self._named("take", x, indices, axis=axis, options=options)


@kernel_method
def take_along_axis(
    self: KernelCaller[Outcome],
    x: OperandLike,
    indices: OperandLike,
    axis: SupportsIndex = -1,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the elements at indices along an axis, others for each row, as ``numpy.take_along_axis``.

    Args:
        x: [...] the array.
        indices: integers, of as many axes as ``x``; negative ones count from the last element.
        axis: the axis; negative axes count from the last.
        options: see `ArrayOptions`.

    Raises:
        IndexOutOfRangeError: for an index that there is not.
    """
    return self._named("take_along_axis", x, indices, axis=axis, options=options)

"""Resharding, copies and transposes: functions that move elements without changing a bit of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, Unpack

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Outcome, kernel_method


@kernel_method
def reshard(self: KernelCaller[Outcome], x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns ``x`` sharded by ``out_spec``, as ``jax.lax.with_sharding_constraint``.

    Args:
        x: [...] the array.
        options: see `ArrayOptions`.
    """
    return self._named("reshard", x, options=options)


@kernel_method
def copy(self: KernelCaller[Outcome], x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns a copy of ``x``, as ``numpy.copy``.

    Args:
        x: [...] the array.
        options: see `ArrayOptions`.
    """
    return self._named("copy", x, options=options)


@kernel_method
def transpose(
    self: KernelCaller[Outcome],
    x: OperandLike,
    axes: Sequence[SupportsIndex] | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns ``x`` with its axes permuted, as ``numpy.transpose``.

    Args:
        x: [...] the array.
        axes: the axis of ``x`` for each axis of the result; None reverses them.
        options: see `ArrayOptions`.
    """
    return self._named("transpose", x, axes=axes, options=options)

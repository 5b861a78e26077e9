"""Resharding, copies and transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, Unpack

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.calling import ArrayOptions, Calling
from shardcall.methods.kernel_method import Outcome, kernel_method


class Layouts(Calling[Outcome]):
    """Functions that move elements without changing a bit of them."""

    @kernel_method
    def reshard(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns ``x`` sharded by ``out_spec``, as ``jax.lax.with_sharding_constraint``.

        Args:
            x: [...] the array.
            options: see `ArrayOptions`.
        """
        return self._named("reshard", x, options=options)

    @kernel_method
    def copy(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """Returns a copy of ``x``, as ``numpy.copy``.

        Args:
            x: [...] the array.
            options: see `ArrayOptions`.
        """
        return self._named("copy", x, options=options)

    @kernel_method
    def transpose(
        self, x: OperandLike, axes: Sequence[SupportsIndex] | None = None, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """Returns ``x`` with its axes permuted, as ``numpy.transpose``.

        Args:
            x: [...] the array.
            axes: the axis of ``x`` for each axis of the result; None reverses them.
            options: see `ArrayOptions`.
        """
        return self._named("transpose", x, axes=axes, options=options)

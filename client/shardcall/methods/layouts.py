"""Arrays laid out otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, Unpack

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.calling import ArrayOptions, Calling, Outcome


class Layouts(Calling[Outcome]):
    """Arrays laid out otherwise: every bit of an element is kept."""

    def reshard(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """The same array, split as ``out_spec`` tells, as ``jax.lax.with_sharding_constraint``.

        Args:
            x: the array.
            options: as of `shardcall.methods.calling.ArrayOptions`.
        """
        return self._named("reshard", x, options=options)

    def copy(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        """A copy of the array, as ``numpy.copy``.

        Args:
            x: the array.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("copy", x, options=options)

    def transpose(
        self, x: OperandLike, axes: Sequence[SupportsIndex] | None = None, **options: Unpack[ArrayOptions]
    ) -> Outcome:
        """The array with its axes in another order, as ``numpy.transpose``.

        Args:
            x: the array.
            axes: for each axis of the result, which of x's it is; None turns their order round.
            options: as of `shardcall.methods.calling.ArrayOptions`; unless told, each axis stays split as it is.
        """
        return self._named("transpose", x, axes=axes, options=options)

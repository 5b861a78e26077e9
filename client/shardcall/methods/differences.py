"""Differences along an axis, and their family."""

from __future__ import annotations

from typing import Unpack

from shardcall.arrays import OperandLike
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

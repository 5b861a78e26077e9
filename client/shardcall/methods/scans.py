"""Running and windowed sums along an axis."""

from __future__ import annotations

from typing import SupportsIndex, Unpack

import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.element_types import parse_dtype
from shardcall.methods.calling import ArrayOptions, Calling, Outcome
from shardcall.methods.scalars import row


class Scans(Calling[Outcome]):
    """Running and windowed sums along an axis."""

    def cumsum(
        self,
        x: OperandLike,
        axis: int | None = None,
        dtype: npt.DTypeLike | None = None,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """The running sum along an axis, as ``numpy.cumsum``.

        Args:
            x: [..., size, ...] the array.
            axis: along which axis; None flattens ``x`` first.
            dtype: the type to sum in and to return; None for that of ``x``, or 64 bits for shorter integers.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        name = None if dtype is None else parse_dtype(dtype).name
        return self._named("cumsum", x, axis=axis, dtype=name, options=options)

    def convolve(
        self,
        x: OperandLike,
        v: OperandLike,
        mode: str | SupportsIndex = "full",
        axis: int = -1,
        **options: Unpack[ArrayOptions],
    ) -> Outcome:
        """The convolution with a window along an axis, as ``numpy.convolve`` for one axis.

        Args:
            x: [..., size, ...] the array; a number is one element.
            v: [length] the window; every device gets it whole. Likewise.
            mode: ``"full"``, ``"same"`` or ``"valid"``, which of the overlaps of ``x`` and ``v`` are returned; or 2, 1
                or 0, NumPy's numbers of them.
            axis: along which axis.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
        return self._named("convolve", row(x), row(v), mode=mode, axis=axis, options=options)

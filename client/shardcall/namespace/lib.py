"""Windows of arrays, `client.xp.lib.stride_tricks`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

from shardcall._src.device_arrays.missing_attributes import unsupported
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.device_arrays.views import read_only_step
from shardcall.namespace.base import counted_axis, part_of, type_of
from shardcall.namespace.emath import EmathNamespace
from shardcall_core.types.tracebacks import shortened

MAX_WINDOW = 1024
"""The size of the largest window; each of its elements is a slice of the array."""
_MAX_STACKED = 64  # operands of a call


@shortened
class StrideTricksNamespace:
    """Functions with the names and arguments of ``numpy.lib.stride_tricks``.

    Args:
        xp: the namespace that this is part of.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def sliding_window_view(
        self,
        x: OperandLike,
        window_shape: SupportsIndex | Sequence[SupportsIndex],
        axis: SupportsIndex | Sequence[SupportsIndex] | None = None,
        *,
        subok: bool = False,
        writeable: bool = False,
    ) -> Any:
        """Returns all windows of an array, as ``numpy.lib.stride_tricks.sliding_window_view``, but a read-only copy.

        Args:
            x: [...] the array.
            window_shape: the size of the window along each of ``axis``, 1 to `MAX_WINDOW`.
            axis: the axis or axes, of which one may come twice; None for all.
            subok: ignored.
            writeable: False; a write to a copy would not reach the array.

        Returns:
            [..., *window_shape]: an axis of n elements has n - size + 1 windows.

        Raises:
            TypeError: for ``writeable``.
            ValueError: for windows that are larger than the array, or not one for each axis.
        """
        if writeable:
            raise unsupported("numpy.lib.stride_tricks.sliding_window_view with writeable=True")
        ndim, sizes = type_of(x).ndim, [*map(operator.index, _sequence(window_shape))]
        axes = range(ndim) if axis is None else [counted_axis(one, ndim) for one in _sequence(axis)]
        if len(sizes) != len(axes):
            raise ValueError(f"window_shape has {len(sizes)} sizes for {len(axes)} axes; give one for each")
        for one, size in zip(axes, sizes, strict=True):
            x = self._windows(x, one, size)
        return x._view(read_only_step(x.type)) if isinstance(x, RemoteArray) else x

    def _windows(self, x: Any, axis: int, size: int) -> Any:
        """Returns the windows along one axis, as another axis behind all others."""
        count = type_of(x).shape[axis] - size + 1
        if not 1 <= size <= MAX_WINDOW or count < 1:
            largest = min(MAX_WINDOW, type_of(x).shape[axis])
            raise ValueError(f"window_shape is {size} along axis {axis}; give 1 to {largest}")
        before = (slice(None),) * axis
        parts = [part_of(x, (*before, slice(start, start + count))) for start in range(size)]
        stacked = [
            self._xp.stack(parts[start : start + _MAX_STACKED], axis=-1) for start in range(0, size, _MAX_STACKED)
        ]
        return self._xp.concatenate(stacked, axis=-1) if len(stacked) > 1 else stacked[0]


class LibNamespace:
    """Functions with the names and arguments of ``numpy.lib``.

    Args:
        xp: the namespace that this is part of.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    @property
    def scimath(self) -> EmathNamespace:
        """The module of ``numpy.emath``."""
        return EmathNamespace(self._xp)

    @property
    def stride_tricks(self) -> StrideTricksNamespace:
        """Windows of arrays."""
        return StrideTricksNamespace(self._xp)


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) else (value,)

"""Functions with keywords of the Python array API standard beside those of the client's methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall._src.device_arrays.scalars import typed
from shardcall._src.types.element_types import parse_dtype
from shardcall.namespace.base import NamespaceBase, type_of
from shardcall.namespace.inspection import check_device

Axes = int | Sequence[int] | None


class StandardNamespace(NamespaceBase):
    """Functions with keywords of the Python array API standard; other keywords are those of the client's methods."""

    def astype(  # type: ignore[override]  # with the standard's keywords
        self, x: OperandLike, dtype: npt.DTypeLike, /, *, copy: bool = True, device: str | None = None, **options: Any
    ) -> Any:
        """Returns the array as another element type, as ``numpy.astype``.

        Args:
            x: the array.
            dtype: the element type.
            copy: False to return an array of this type as it is.
            device: ``"mesh"`` or None.
            options: those of `Client.astype`.
        """
        check_device({"device": device})
        here = find_remote_array(x)
        if not copy and here is not None and here.dtype == parse_dtype(dtype):
            return here
        return super().astype(x, dtype, **options)

    def reshape(  # type: ignore[override]
        self,
        x: OperandLike,
        /,
        shape: SupportsIndex | Sequence[SupportsIndex],
        *,
        copy: bool | None = None,
        **options: Any,
    ) -> Any:
        """Returns the elements in another shape, as ``numpy.reshape``.

        Args:
            x: the array.
            shape: the shape; one size may be -1.
            copy: has no effect: results never change.
            options: those of `Client.reshape`.
        """
        del copy
        return super().reshape(x, shape, **options)

    def sort(  # type: ignore[override]
        self, x: OperandLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True, **options: Any
    ) -> Any:
        """Returns the array sorted along an axis, as ``numpy.sort``.

        Args:
            x: the array.
            axis: the axis; None for the flattened array.
            descending: whether to begin with the greatest elements.
            stable: has no effect: equal elements keep their sequence.
            options: those of `Client.sort`.
        """
        del stable
        made = super().sort(x, axis, **options)
        return self.flip(made, -1 if axis is None else axis) if descending else made

    def argsort(  # type: ignore[override]
        self, x: OperandLike, /, axis: int | None = -1, *, descending: bool = False, stable: bool = True, **options: Any
    ) -> Any:
        """Returns the indices that sort an array along an axis, as ``numpy.argsort``; arguments are those of `sort`."""
        del stable
        if not descending:
            return super().argsort(x, axis, **options)
        x, axis = (super().reshape(x, -1), -1) if axis is None else (x, axis)
        shape = type_of(x).shape
        if not shape:
            return super().argsort(x, axis, **options)
        # The indices in the flipped array, counted from its end, so that equal elements keep their sequence.
        reversed_ = super().argsort(self.flip(x, axis), axis, **options)
        return self.subtract(shape[axis] - 1, self.flip(reversed_, axis))

    def var(  # type: ignore[override]
        self,
        x: OperandLike,
        /,
        axis: Axes = None,
        *,
        ddof: float = 0,
        correction: float | None = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Any:
        """Returns the variance over axes, as ``numpy.var``.

        Args:
            x: the array.
            axis: the axes; None for all.
            ddof: what is subtracted from the number of elements; ``correction`` is its other name.
            correction: the same; None for ``ddof``.
            keepdims: whether the axes stay, with a size of 1.
            options: those of `Client.var`.
        """
        ddof = ddof if correction is None else correction
        return super().var(x, axis, ddof=ddof, keepdims=keepdims, **options)

    def std(  # type: ignore[override]
        self,
        x: OperandLike,
        /,
        axis: Axes = None,
        *,
        ddof: float = 0,
        correction: float | None = None,
        keepdims: bool = False,
        **options: Any,
    ) -> Any:
        """Returns the standard deviation over axes, as ``numpy.std``; arguments are those of `var`."""
        ddof = ddof if correction is None else correction
        return super().std(x, axis, ddof=ddof, keepdims=keepdims, **options)

    def nextafter(self, x1: OperandLike, x2: OperandLike, /, **options: Any) -> Any:
        """Returns the next number from each element of x1 towards that of x2, as ``numpy.nextafter``."""
        return self.call("nextafter", *typed("nextafter", (x1, x2)), **options)

    def repeat(  # type: ignore[override]
        self, x: OperandLike, repeats: Any, /, axis: int | None = None, **options: Any
    ) -> Any:
        """Returns each element several times, as ``numpy.repeat``.

        Args:
            x: the array.
            repeats: how many times, or an array with a number for each element along the axis. The size of the result
                depends on its values, which are copied from the mesh.
            axis: the axis; None for the flattened array.
            options: those of `Client.repeat`, for one number.
        """
        here = find_remote_array(repeats)
        counts = np.asarray(repeats if here is None else here.get())
        if counts.ndim == 0:
            return super().repeat(x, int(counts), axis, **options)
        x, axis = (super().reshape(x, -1), 0) if axis is None else (x, axis)
        indices = np.repeat(np.arange(type_of(x).shape[axis]), counts)
        return self.take(x, indices, axis=axis)

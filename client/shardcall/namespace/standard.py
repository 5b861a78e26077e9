"""Functions with keywords of the Python array API standard beside those of the client's methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.described import Described
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall._src.device_arrays.scalars import typed
from shardcall.namespace.base import NamespaceBase, array_of, check_indices, counted_axis, type_of
from shardcall.namespace.inspection import check_device
from shardcall_core.functions.element_types import is_float
from shardcall_core.types.element_types import parse_dtype

Axes = int | Sequence[int] | None


def _sorting(function: Callable[[Any, Any, Any, bool, Any], Any]) -> Callable[..., Any]:
    """Gives a function that sorts the standard's keywords."""

    def sorting(
        self: Any,
        x: OperandLike,
        /,
        axis: int | None = -1,
        *,
        descending: bool = False,
        stable: bool = True,
        **options: Any,
    ) -> Any:
        del stable
        return function(self, x, axis, descending, options)

    return _named_as(function, sorting)


def _with_correction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function with a number of degrees of freedom the standard's keywords."""

    def with_correction(
        self: Any,
        x: OperandLike,
        /,
        axis: Axes = None,
        *,
        dtype: npt.DTypeLike | None = None,
        ddof: float = 0,
        correction: float | None = None,
        keepdims: bool = False,
        where: OperandLike | None = None,
        **options: Any,
    ) -> Any:
        freedom = ddof if correction is None else correction
        how: dict[str, Any] = {"ddof": freedom, "keepdims": keepdims, "where": where, **options}
        if dtype is None:
            return function(self, x, axis, **how)
        own, wanted = type_of(x).dtype, parse_dtype(dtype)
        if own.kind == "c" or not is_float(wanted):
            raise TypeError(f"dtype={wanted.name} and x is of {own.name}; give a floating-point type, for real numbers")
        return self.astype(function(self, self.astype(x, np.result_type(own, wanted)), axis, **how), wanted)

    return _named_as(function, with_correction)


def _named_as(function: Callable[..., Any], made: Callable[..., Any]) -> Callable[..., Any]:
    made.__name__, made.__qualname__, made.__doc__ = function.__name__, function.__qualname__, function.__doc__
    return made


class StandardNamespace(NamespaceBase):
    """Functions with keywords of the Python array API standard; other keywords are those of the client's methods."""

    def astype(  # with the standard's keywords
        self, x: OperandLike, dtype: npt.DTypeLike, /, *, copy: bool = True, device: str | None = None, **options: Any
    ) -> Any:
        """Returns the array as another element type, as ``numpy.astype``.

        Args:
            x: the array.
            dtype: the element type; None for float64.
            copy: False to return an array of this type as it is.
            device: ``"mesh"`` or None.
            options: those of `Client.astype`.
        """
        check_device({"device": device})
        dtype = np.float64 if dtype is None else dtype  # as numpy.dtype(None) is
        if not copy and isinstance(x, Described) and x.dtype == parse_dtype(dtype):
            return x
        return super().astype(x, dtype, **options)

    def reshape(
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
            copy: True for a result that is no view of x in NumPy.
            options: those of `Client.reshape`.
        """
        made = super().reshape(x, shape, **options)
        return self._copied(made) if copy else made

    @_sorting
    def sort(self, x: OperandLike, axis: int | None, descending: bool, options: Any) -> Any:
        """Returns the array sorted along an axis, as ``numpy.sort``.

        Args:
            x: the array.
            axis: the axis; None for the flattened array.
            descending: whether to begin with the greatest elements.
            stable: has no effect: equal elements keep their sequence.
            options: those of `Client.sort`.
        """
        made = super().sort(x, axis, **options)
        return self.flip(made, -1 if axis is None else axis) if descending else made

    @_sorting
    def argsort(self, x: OperandLike, axis: int | None, descending: bool, options: Any) -> Any:
        """Returns the indices that sort an array along an axis, as ``numpy.argsort``; arguments are those of `sort`."""
        x = self._with_axis(x, axis)
        if not descending:
            return super().argsort(x, axis, **options)
        x, axis = (super().reshape(x, -1), -1) if axis is None else (x, axis)
        shape = type_of(x).shape
        # The indices in the flipped array, counted from its end, so that equal elements keep their sequence.
        reversed_ = super().argsort(self.flip(x, axis), axis, **options)
        return self.subtract(shape[axis] - 1, self.flip(reversed_, axis))

    @_with_correction
    def var(self, x: OperandLike, axis: Axes, **options: Any) -> Any:
        """Returns the variance over axes, as ``numpy.var``.

        Args:
            x: the array.
            axis: the axes; None for all.
            dtype: the floating-point type of the result, in which it is computed if it is the wider one.
            ddof: what is subtracted from the number of elements; ``correction`` is its other name.
            correction: the same; None for ``ddof``.
            keepdims: whether the axes stay, with a size of 1.
            where: the elements to compute with; None for all.
            options: those of `Client.var`.
        """
        return super().var(x, axis, **options)

    @_with_correction
    def std(self, x: OperandLike, axis: Axes, **options: Any) -> Any:
        """Returns the standard deviation over axes, as ``numpy.std``; arguments are those of `var`."""
        return super().std(x, axis, **options)

    def nextafter(self, x1: OperandLike, x2: OperandLike, /, **options: Any) -> Any:
        """Returns the next number from each element of x1 towards that of x2, as ``numpy.nextafter``."""
        return self.call("nextafter", *typed("nextafter", (x1, x2)), **options)

    def repeat(self, x: OperandLike, repeats: Any, /, axis: int | None = None, **options: Any) -> Any:
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
        is_typed = here is not None or isinstance(repeats, np.ndarray | np.generic)
        if is_typed and not np.can_cast(counts.dtype, np.int64, "safe"):
            raise TypeError(f"repeats is of {counts.dtype.name}; give integers")
        if counts.dtype.kind == "c":
            raise TypeError("repeats is a complex number; give an integer")
        counts = counts.astype(np.int64)
        x = self._with_axis(x, axis)
        if counts.ndim == 0:
            return super().repeat(x, int(counts), axis, **options)
        x, axis = (super().reshape(x, -1), 0) if axis is None else (x, counted_axis(axis, type_of(x).ndim))
        indices = np.repeat(np.arange(type_of(x).shape[axis]), counts)
        return self.take(x, indices, axis=axis)

    def gradient(
        self, x: OperandLike, *spacing: OperandLike, axis: Any = None, edge_order: int = 1, **options: Any
    ) -> Any:
        """Returns the derivative along axes, as ``numpy.gradient``; options are those of `Client.gradient`.

        An array without axes has none.
        """
        is_empty = axis is None and not type_of(x).ndim
        return () if is_empty else super().gradient(x, *spacing, axis=axis, edge_order=edge_order, **options)

    def take(self, x: OperandLike, indices: OperandLike, axis: SupportsIndex | None = None, **options: Any) -> Any:
        """Returns the elements at indices along an axis, as ``numpy.take``; options are those of `Client.take`."""
        here = array_of(np.int64(int(indices)) if isinstance(indices, float | complex) else indices)  # type: ignore[call-overload]
        if here.dtype.kind == "b" or not isinstance(indices, Described | np.ndarray | np.generic):
            here = self._converted(here, np.dtype(np.int64))  # an empty list, too, as NumPy does
        x = self._with_axis(x, axis)
        shape = type_of(x).shape
        if math.prod(here.shape) and not (math.prod(shape) if axis is None else shape[counted_axis(axis, len(shape))]):
            raise IndexError(f"x is of shape {shape}, without elements along the axis; take none from it")
        return super().take(x, here, axis, **options)

    def take_along_axis(
        self, x: OperandLike, indices: OperandLike, axis: SupportsIndex | None = -1, **options: Any
    ) -> Any:
        """Returns the elements at indices along an axis, others for each row, as ``numpy.take_along_axis``.

        Args:
            x: the array.
            indices: integers, of as many axes.
            axis: the axis; None for the flattened array.
            options: those of `Client.take_along_axis`.

        Raises:
            IndexError: for indices that are no integers.
        """
        check_indices(indices)
        x, axis = (super().reshape(x, -1), 0) if axis is None else (x, axis)
        return super().take_along_axis(x, indices, axis, **options)

    def squeeze(self, x: OperandLike, axis: Axes = None, **options: Any) -> Any:
        """Returns the array without axes of size 1, as ``numpy.squeeze``; options are those of `Client.squeeze`."""
        if isinstance(axis, SupportsIndex) and not type_of(x).ndim:
            counted_axis(axis, 1)
            axis = None
        return super().squeeze(x, axis, **options)

    def expand_dims(self, x: OperandLike, axis: int | Sequence[int], **options: Any) -> Any:
        """Returns the array with new axes of size 1, as ``numpy.expand_dims``; options are of `Client.expand_dims`."""
        if axis is None:
            raise TypeError("axis=None; give the position of the new axis, or several")
        return super().expand_dims(x, axis, **options)

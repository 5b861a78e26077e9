"""Functions that change the shape of arrays or take and repeat parts of them; every bit is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, Unpack

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Options, Outcome, kernel_method
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.element_types import dtype_name, parse_dtype
from shardcall_core.types.errors import InvalidParameterError, ParameterTypeError

Axes = SupportsIndex | Sequence[SupportsIndex]
Width = SupportsIndex | Sequence[SupportsIndex]
Widths = Width | Sequence[Sequence[SupportsIndex]] | dict[int, Width]


@kernel_method
def reshape(self: KernelCaller[Outcome], x: OperandLike, shape: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns the elements of ``x`` in another shape, as ``numpy.reshape``.

    Args:
        x: [...] the array.
        shape: the sizes; one of them may be -1 and stands for what is left.
        options: see `ArrayOptions`.
    """
    return self._named("reshape", x, shape=shape, options=options)


@kernel_method
def expand_dims(self: KernelCaller[Outcome], x: OperandLike, axis: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns ``x`` with new axes of size 1, as ``numpy.expand_dims``.

    Args:
        x: [...] the array.
        axis: the axis or axes of the result that are new; negative axes count from the last.
        options: see `ArrayOptions`.
    """
    return self._named("expand_dims", x, axis=axis, options=options)


@kernel_method
def squeeze(
    self: KernelCaller[Outcome], x: OperandLike, axis: Axes | None = None, **options: Unpack[ArrayOptions]
) -> Outcome:
    """Returns ``x`` without axes of size 1, as ``numpy.squeeze``.

    Args:
        x: [...] the array.
        axis: the axis or axes to remove; None removes all of size 1.
        options: see `ArrayOptions`.
    """
    return self._named("squeeze", x, axis=axis, options=options)


@kernel_method
def broadcast_to(self: KernelCaller[Outcome], x: OperandLike, shape: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns ``x`` broadcast to a shape, as ``numpy.broadcast_to``; the result is an array of its own.

    Args:
        x: [...] the array.
        shape: the sizes.
        options: see `ArrayOptions`.
    """
    return self._named("broadcast_to", x, shape=shape, options=options)


@kernel_method
def flip(
    self: KernelCaller[Outcome], x: OperandLike, axis: Axes | None = None, **options: Unpack[ArrayOptions]
) -> Outcome:
    """Returns ``x`` with its elements in reverse order, as ``numpy.flip``.

    Args:
        x: [...] the array.
        axis: the axis or axes; None for all.
        options: see `ArrayOptions`.
    """
    return self._named("flip", x, axis=axis, options=options)


@kernel_method
def concatenate(
    self: KernelCaller[Outcome],
    arrays: Sequence[OperandLike],
    axis: SupportsIndex | None = 0,
    **options: Unpack[Options],
) -> Outcome:
    """Returns arrays joined along an axis, as ``numpy.concatenate``.

    Args:
        arrays: the arrays, of one shape but for the axis.
        axis: the axis; None flattens the arrays.
        options: see `Options`.
    """
    return self._named("concatenate", *arrays, axis=axis, options=options)


@kernel_method
def stack(
    self: KernelCaller[Outcome], arrays: Sequence[OperandLike], axis: SupportsIndex = 0, **options: Unpack[Options]
) -> Outcome:
    """Returns arrays joined along a new axis, as ``numpy.stack``.

    Args:
        arrays: the arrays, of one shape.
        axis: the axis of the result that is new.
        options: see `Options`.
    """
    return self._named("stack", *arrays, axis=axis, options=options)


@kernel_method
def astype(
    self: KernelCaller[Outcome], x: OperandLike, dtype: npt.DTypeLike, **options: Unpack[ArrayOptions]
) -> Outcome:
    """Returns ``x`` in another element type, as ``numpy.astype``; of complex numbers the real part.

    Args:
        x: [...] the array.
        dtype: the element type.
        options: see `ArrayOptions`.
    """
    return self._named("astype", x, dtype=parse_dtype(dtype).name, options=options)


@kernel_method
def tile(self: KernelCaller[Outcome], x: OperandLike, reps: Axes, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns copies of ``x`` beside each other, as ``numpy.tile``.

    Args:
        x: [...] the array.
        reps: the number of copies along each axis; along the last one for an integer.
        options: see `ArrayOptions`.
    """
    return self._named("tile", x, reps=reps, options=options)


@kernel_method
def repeat(
    self: KernelCaller[Outcome],
    x: OperandLike,
    repeats: SupportsIndex,
    axis: SupportsIndex | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns each row of ``x`` several times, as ``numpy.repeat``.

    Args:
        x: [...] the array.
        repeats: the number of times, one for all rows.
        axis: the axis; None flattens ``x``.
        options: see `ArrayOptions`.
    """
    return self._named("repeat", x, repeats=repeats, axis=axis, options=options)


@kernel_method
def tril(self: KernelCaller[Outcome], x: OperandLike, k: SupportsIndex = 0, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns the lower triangles of matrices, zeros elsewhere, as ``numpy.tril``.

    Args:
        x: [..., rows, columns] the matrices; [columns] stands for equal rows.
        k: the last diagonal that is kept; 0 for the main one, negative ones are below it.
        options: see `ArrayOptions`.
    """
    return self._named("tril", x, k=k, options=options)


@kernel_method
def triu(self: KernelCaller[Outcome], x: OperandLike, k: SupportsIndex = 0, **options: Unpack[ArrayOptions]) -> Outcome:
    """Returns the upper triangles of matrices, zeros elsewhere, as ``numpy.triu``.

    Args:
        x: [..., rows, columns] the matrices; [columns] stands for equal rows.
        k: the first diagonal that is kept; 0 for the main one, negative ones are below it.
        options: see `ArrayOptions`.
    """
    return self._named("triu", x, k=k, options=options)


@kernel_method
def diagonal(
    self: KernelCaller[Outcome],
    x: OperandLike,
    offset: SupportsIndex = 0,
    axis1: SupportsIndex = 0,
    axis2: SupportsIndex = 1,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the diagonals of matrices, as ``numpy.diagonal``; the result is an array of its own.

    Args:
        x: [...] the array, of two axes or more.
        offset: the diagonal; 0 for the main one, positive ones are above it.
        axis1: the axis of the rows.
        axis2: the axis of the columns.
        options: see `ArrayOptions`.
    """
    return self._named("diagonal", x, offset=offset, axis1=axis1, axis2=axis2, options=options)


@kernel_method
def trace(
    self: KernelCaller[Outcome],
    x: OperandLike,
    offset: SupportsIndex = 0,
    axis1: SupportsIndex = 0,
    axis2: SupportsIndex = 1,
    dtype: npt.DTypeLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns the sums of the diagonals of matrices, as ``numpy.trace``.

    Args:
        x: [...] the array, of two axes or more.
        offset: the diagonal; 0 for the main one, positive ones are above it.
        axis1: the axis of the rows.
        axis2: the axis of the columns.
        dtype: the element type of the sums; None for that of ``numpy.sum``.
        options: see `ArrayOptions`.
    """
    parameters = {"offset": offset, "axis1": axis1, "axis2": axis2, "dtype": dtype_name(dtype)}
    return self._named("trace", x, **parameters, options=options)


@kernel_method
def pad(
    self: KernelCaller[Outcome],
    x: OperandLike,
    pad_width: Widths,
    mode: str = "constant",
    constant_values: OperandLike | None = None,
    **options: Unpack[ArrayOptions],
) -> Outcome:
    """Returns ``x`` with rows before and behind each axis, as ``numpy.pad``.

    Args:
        x: [...] the array.
        pad_width: the number of rows: one for all, one before and one behind, or such a pair for each axis; or a
            dict of them by axis.
        mode: ``"constant"``, ``"edge"``, ``"reflect"``, ``"symmetric"`` or ``"wrap"``.
        constant_values: [] the new elements of the mode ``"constant"``; None for 0.
        options: see `ArrayOptions`.
    """
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * np.ndim(x)  # type: ignore[arg-type]
        for axis, rows in pad_width.items():
            pairs[axis] = rows if isinstance(rows, Sequence) else (rows, rows)
        pad_width = pairs
    width = np.asarray(pad_width)
    if width.dtype.kind == "f" and not width.size:  # of an empty list
        raise ParameterTypeError("pad_width is empty; give numbers of rows", field="pad_width")
    flat = pad_width if width.dtype.kind not in "iu" or not width.ndim else _pairs(width, np.ndim(x))  # type: ignore[arg-type]
    return self._named("pad", x, constant_values, pad_width=flat, mode=mode, options=options)


def _pairs(width: NDArray, ndim: int) -> list[int]:
    """Returns the rows before and behind: one number or one of each for all axes, or both of each axis.

    Raises:
        InvalidParameterError: for what NumPy does not broadcast to both of each axis.
    """
    if width.ndim < 3 and (width.size == 1 or (width.size == 2 and width.shape != (2, 1))):
        return width.ravel().tolist()
    try:
        return np.broadcast_to(width, (ndim, 2)).ravel().tolist()
    except ValueError:
        message = (
            f"pad_width is of shape {width.shape} and x has {ndim} axes; give one number, one before and one behind "
            "all axes, or one or both for each axis"
        )
        raise InvalidParameterError(message, field="pad_width") from None

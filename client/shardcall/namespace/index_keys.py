"""Reads the arrays among the items of an index."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array
from shardcall_core.functions.indexing import is_basic
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.tracebacks import level_of_caller


def read_items(key: Any) -> list[Any]:
    """Returns the items of an index, its arrays as arrays of integers or bool, those of bool without axes as a bool.

    Raises:
        IndexError: for an array of another element type.
    """
    return [item if is_basic(item) else _array(item) for item in (key if isinstance(key, tuple) else (key,))]


def _array(item: Any) -> Any:
    array: Any = find_remote_array(item)
    if array is None:
        array = np.asarray(item)
        if not array.size and not isinstance(item, np.ndarray):
            array = array.astype(np.int64)  # an empty list is of no type
    if array.dtype.kind not in "biu":
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are "
            f"valid indices, and not {array.dtype.name}"
        )
    return bool(array) if array.dtype == np.bool_ and not array.ndim else array


def is_mask(item: Any) -> bool:
    """Returns True for an array of bool."""
    return isinstance(item, RemoteArray | np.ndarray) and item.dtype == np.bool_


def only_mask(items: Sequence[Any]) -> Any:
    """Returns the mask of an index with nothing else but ``...`` and full slices behind it; None for another index."""
    first, *others = items or [None]
    is_only = all(item is Ellipsis or (isinstance(item, slice) and item == slice(None)) for item in others)
    return first if is_mask(first) and is_only else None


def checked_items(shape: Sequence[int], items: Sequence[Any]) -> list[Any]:
    """Returns the items of an index, indices of this process counted from the first element.

    Args:
        shape: the shape of the array.
        items: the items, as `read_items` returns them.

    Raises:
        IndexError: for indices that there are not, and for masks of another shape.
    """
    axes = _axes(shape, items)
    return [_checked(shape, axis, item) for axis, item in zip(axes, items, strict=True)]


def check_together(arrays: Sequence[Any]) -> None:
    """Checks that arrays of indices broadcast together.

    Raises:
        IndexError: if they do not.
    """
    shapes = [array.shape for array in arrays]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {' '.join(map(str, shapes))}"
        ) from None


def _axes(shape: Sequence[int], items: Sequence[Any]) -> Iterator[int]:
    used = [_axes_of(item) for item in items]
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if sum(used) > len(shape):
        raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {sum(used)} were indexed")
    axis = 0
    for item, count in zip(items, used, strict=True):
        yield axis
        axis += len(shape) - sum(used) if item is Ellipsis else count


def _axes_of(item: Any) -> int:
    if item is None or item is Ellipsis or isinstance(item, bool | np.bool_):
        return 0
    return item.ndim if is_mask(item) else 1


def _checked(shape: Sequence[int], axis: int, item: Any) -> Any:
    if is_mask(item):
        for i, size in enumerate(item.shape):
            if size != shape[axis + i]:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {axis + i}; size of axis is "
                    f"{shape[axis + i]} but size of corresponding boolean axis is {size}"
                )
    elif isinstance(item, np.ndarray) and item.ndim:
        count = shape[axis]
        wrong = (item >= count) | (item < -count) if item.dtype.kind == "i" else item >= count
        if wrong.any():
            raise IndexError(f"index {item[wrong][0]} is out of bounds for axis {axis} with size {count}")
        return np.where(item < 0, item.astype(np.int64) + count, item.astype(np.int64))
    return item


def as_values(values: Any, dtype: np.dtype) -> RemoteArray | NDArray:
    """Returns what is assigned to elements: those of this process in the array's type, as NumPy converts them.

    Raises:
        OverflowError: for an integer that the type does not hold; other errors as of NumPy's assignment.
    """
    array = find_remote_array(values)
    if array is not None:
        if array.dtype.kind == "c" and dtype.kind not in "bc":
            warnings.warn(
                "Casting complex values to real discards the imaginary part",
                np.exceptions.ComplexWarning,
                stacklevel=level_of_caller(),
            )
        return array
    operand = as_operand(values, "values")
    if operand.dtype == dtype:
        return operand
    converted = np.empty(operand.shape, dtype)
    converted[...] = values if isinstance(values, np.ndarray | np.generic | int | float | complex | list) else operand
    return converted


def without_leading(values: Any, ndim: int) -> tuple[int, ...]:
    """Returns the shape of values without the axes of size 1 in front that are more than ``ndim``."""
    shape: tuple[int, ...] = values.shape
    while len(shape) > ndim and shape[0] == 1:
        shape = shape[1:]
    return shape


def check_broadcast(shape: Sequence[int], to: Sequence[int]) -> None:
    """Checks that values broadcast to elements.

    Raises:
        ValueError: if they do not.
    """
    missing = len(to) - len(shape)
    if missing < 0 or any(size not in (1, wide) for size, wide in zip(shape, to[missing:], strict=True)):
        raise ValueError(f"could not broadcast input array from shape {tuple(shape)} into shape {tuple(to)}")

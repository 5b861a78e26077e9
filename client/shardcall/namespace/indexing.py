"""Elements at indices: taken, and replaced in a new array."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardcall._src.device_arrays.masked_elements import WRITE, MaskedElements
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.device_arrays.views import index_step
from shardcall.namespace.base import NamespaceBase
from shardcall.namespace.index_keys import (
    as_values,
    check_broadcast,
    check_together,
    checked_items,
    is_mask,
    only_mask,
    read_items,
    without_leading,
)
from shardcall.namespace.searching import chosen, nonzero
from shardcall_core.element_types import DType
from shardcall_core.functions.indexing import ArrayIndex, BasicIndex, array_index, basic_index, is_basic
from shardcall_core.types.errors import TracingError

_OPERATIONS = {
    **{name: name for name in ("add", "multiply", "divide", "power")},
    "min": "minimum",
    "max": "maximum",
}
"""The function of each update but ``set``."""


def getitem(xp: NamespaceBase, x: RemoteArray, key: Any) -> Any:
    """Returns the elements of an array at an index, as ``x[key]``.

    Waits for the number of elements if the index has a mask on the mesh.

    Args:
        x: the array.
        key: integers, slices, ``...``, None, and arrays of integers or bool, as NumPy takes them.

    Raises:
        IndexError: for other indices, and for integers out of range. Integers on the mesh are checked when the
            result is read, which raises an `IndexOutOfRangeError`, an IndexError.
    """
    items = read_items(key)
    if all(map(is_basic, items)):
        basic = basic_index(x.shape, tuple(items))
        is_view = basic.shape or any(item is Ellipsis for item in items)
        if is_view and isinstance(x, RemoteArray):
            return x._view(index_step(basic, x.dtype))
        element = _sliced(xp, x, basic)
        if x.shape and isinstance(x, RemoteArray):
            element._element_of = weakref.ref(x._store)
        return element
    items = checked_items(x.shape, items)
    if (mask := only_mask(items)) is not None:
        return _masked(xp, x, mask) if (traced := xp.traced(mask)) is None else MaskedElements.of(xp, x, traced)
    index = _array_index(xp, x, items)
    slices = basic_index(x.shape, index.key)
    if not _is_all(slices, x.shape) and (others := _beside_one_number(index)) is not None:
        row = _taken(xp, x, index)  # of which alone the other axes are sliced
        return _sliced(xp, row, basic_index(row.shape, others))
    return _taken(xp, _sliced(xp, x, slices), index)


def setitem(xp: NamespaceBase, x: RemoteArray, key: Any, values: Any) -> Any:
    """Returns an array with other elements at an index, as ``x[key] = values`` makes it.

    Args:
        x: the array.
        key: as of `getitem`.
        values: values that broadcast to the elements; converted to the element type of x. None stands for NaN, and
            in arrays of bool for False.

    Raises:
        IndexError: as of `getitem`.
        ValueError: for values that do not broadcast to the elements, lists of more axes than these, and values with
            axes for one element.
    """
    if isinstance(values, MaskedElements):
        mask = only_mask(checked_items(x.shape, read_items(key)))
        return values.written_to(x, None if mask is None else xp.traced(mask))
    if values is None and x.dtype.kind in "fcb":
        values = np.asarray(None, x.dtype)
    return update(xp, x, key, values, "set")


def update(xp: NamespaceBase, x: RemoteArray, key: Any, values: Any, mode: str) -> Any:
    """Returns an array with the elements at an index updated, as ``jax.Array.at``.

    Args:
        x: the array.
        key: as of `getitem`.
        values: the operands of the updates, as of `setitem`.
        mode: ``set``, ``add``, ``multiply``, ``divide``, ``power``, ``min`` or ``max``. Of equal indices the last
            is set; the other updates are all made, in some order.

    Raises:
        IndexError: as of `getitem`.
        ValueError: for values that do not broadcast to the elements, and as of `setitem`.
    """
    x, items = copy.copy(x), read_items(key)
    basic = basic_index(x.shape, tuple(items)) if all(map(is_basic, items)) else None
    is_element = mode == "set" and basic is not None and not basic.shape and Ellipsis not in items
    if is_element and x.dtype == np.bool_ and isinstance(values, list | tuple):
        values = bool(values)  # as Python: whether it has elements
    new = as_values(values, x.dtype)
    if new.dtype.kind == "c" and x.dtype.kind != "c":
        new = xp.not_equal(new, 0) if x.dtype.kind == "b" else xp.real(new)
    if basic is not None:
        if is_element or (mode == "set" and isinstance(values, list | tuple)):
            _check_axes(new, basic.shape, x.dtype)
        return _update_slices(xp, x, basic, new, mode)
    items = checked_items(x.shape, items)
    if (mask := only_mask(items)) is not None:
        rest = x.ndim - mask.ndim
        if mode == "set" and len(items) == 1 and not rest and new.ndim > 1:
            raise TypeError(f"values is of shape {new.shape}; a mask of all axes takes a scalar or one axis of them")
        shape = without_leading(new, rest)
        if len(shape) <= rest:
            check_broadcast(shape, x.shape[mask.ndim :])
            return _update_where(xp, x, mask, _reshaped(xp, new, shape), mode)
    _check_masks(xp, items)
    index = _array_index(xp, x, items)
    slices = basic_index(x.shape, index.key)
    if not _is_all(slices, x.shape) and (others := _beside_one_number(index)) is not None:
        row = _taken(xp, x, index)
        return _put_at(xp, x, index, _update_slices(xp, row, basic_index(row.shape, others), new, mode), "set")
    part = _sliced(xp, x, slices)
    updated = _update_at(xp, part, index, new, mode)
    return updated if _is_all(slices, x.shape) else _update_slices(xp, x, slices, updated, "set")


def _check_masks(xp: NamespaceBase, items: Sequence[Any]) -> None:
    """Checks that an index of elements that are written has no mask of the function that is traced.

    Raises:
        TracingError: if it has one.
    """
    for item in items:
        if is_mask(item) and (mask := xp.traced(item)) is not None:
            raise TracingError(
                f"an assignment to elements at a mask beside other indices, or of one value for each of them, needs "
                f"their number, which is not known while {mask._trace.name} is traced; {WRITE}"
            )


def _check_axes(values: Any, shape: tuple[int, ...], dtype: DType) -> None:
    """Checks that a list has no more axes than the elements that are set, and that there is one value for one element.

    Raises:
        ValueError: otherwise; bool takes an array of one element, too.
    """
    if values.ndim > len(shape) and (shape or dtype != np.bool_):
        what = f"elements of shape {shape}; give as many axes" if shape else "one element; give a scalar"
        raise ValueError(f"values is of shape {values.shape}, and the index stands for {what}")


def _sliced(xp: NamespaceBase, x: RemoteArray, index: BasicIndex) -> RemoteArray:
    if _is_all(index, x.shape):
        return copy.copy(x)  # an object of its own, which keeps its values when x is assigned to
    return xp.call("getitem", x, _starts(index), **index.parameters)  # type: ignore[no-any-return]


def _masked(xp: NamespaceBase, x: RemoteArray, mask: Any) -> Any:
    if mask.ndim == 1:
        return chosen(xp, x, mask, 0)
    if mask.ndim == x.ndim:
        return chosen(xp, x, mask, None)
    return chosen(xp, xp.reshape(x, (math.prod(mask.shape), *x.shape[mask.ndim :])), mask, 0)


def _array_index(xp: NamespaceBase, x: RemoteArray, items: Sequence[Any]) -> ArrayIndex:
    arrays: list[Any] = []
    for item in items:
        if is_mask(item):
            arrays += np.nonzero(item) if isinstance(item, np.ndarray) else nonzero(xp, item)
        else:
            arrays.append(item)
    if len(arrays) > len(items):
        arrays = checked_items(x.shape, arrays)
    index = array_index(x.ndim, arrays)
    check_together(index.arrays)
    return index


def _beside_one_number(index: ArrayIndex) -> tuple[Any, ...] | None:
    """Returns the slices beside the only array of an index, if that is one number; None for another index."""
    is_number = len(index.arrays) == 1 and not index.arrays[0].ndim
    if not is_number or not all(item is Ellipsis or isinstance(item, slice) for item in index.key):
        return None
    axis, key = index.axes[0], index.key
    # An ellipsis before the array stands for all axes that have no item.
    return (*key[:axis], *key[axis + 1 :]) if Ellipsis not in key[: axis + 1] else None


def _taken(xp: NamespaceBase, x: RemoteArray, index: ArrayIndex) -> Any:
    if index.axes == (index.position,):
        return xp.take(x, index.arrays[0], axis=index.position)
    return xp.call("take_at", x, *index.arrays, axes=index.axes, position=index.position)


def _update_slices(xp: NamespaceBase, x: RemoteArray, index: BasicIndex, values: Any, mode: str) -> Any:
    target = index.shape
    shape = without_leading(values, len(target))
    check_broadcast(shape, target)
    if 0 in index.sizes:
        return x
    values = _reshaped(xp, values, shape)
    if mode != "set":
        values = getattr(xp, _OPERATIONS[mode])(_sliced(xp, x, index), values)
    return xp.call("setitem", x, values, _starts(index), **index.parameters)


def _update_where(xp: NamespaceBase, x: RemoteArray, mask: Any, values: Any, mode: str) -> Any:
    mask = _reshaped(xp, mask, mask.shape + (1,) * (x.ndim - mask.ndim))
    new = values
    if mode != "set":
        new = getattr(xp, _OPERATIONS[mode])(xp.selected(mask, x), xp.selected(mask, values))
    if new.dtype != x.dtype:
        new = xp.astype(new, x.dtype)
    return xp.where(mask, new, x)


def _update_at(xp: NamespaceBase, x: RemoteArray, index: ArrayIndex, values: Any, mode: str) -> Any:
    at = np.broadcast_shapes(*(array.shape for array in index.arrays))
    others = [size for axis, size in enumerate(x.shape) if axis not in index.axes]
    target = (*others[: index.position], *at, *others[index.position :])
    shape = without_leading(values, len(target))
    check_broadcast(shape, target)
    if 0 in target:
        return x
    values = _reshaped(xp, values, shape)
    if mode not in ("divide", "power"):
        return _put_at(xp, x, index, values, mode)
    ones = xp.astype(xp.logical_or(x, True), x.dtype)
    factors = _put_at(xp, ones, index, values, "multiply")  # of equal indices
    new = getattr(xp, mode)(_taken(xp, x, index), _taken(xp, factors, index))
    return _put_at(xp, x, index, new, "set")


def _put_at(xp: NamespaceBase, x: RemoteArray, index: ArrayIndex, values: Any, mode: str) -> Any:
    return xp.call("put_at", x, values, *index.arrays, axes=index.axes, position=index.position, mode=mode)


def _reshaped(xp: NamespaceBase, values: Any, shape: tuple[int, ...]) -> Any:
    if values.shape == shape:
        return values
    return values.reshape(shape) if isinstance(values, np.ndarray) else xp.reshape(values, shape)


def _starts(index: BasicIndex) -> Any:
    return np.asarray(index.starts, np.int64)


def _is_all(index: BasicIndex, shape: tuple[int, ...]) -> bool:
    is_complete = index.sizes == shape and all(step == 1 for step in index.steps)
    return is_complete and not (index.dropped or index.inserted)

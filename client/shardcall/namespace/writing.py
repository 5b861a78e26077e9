"""Functions that change their first argument, with NumPy's names: put, place, putmask, copyto, fill_diagonal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardcall._src.device_arrays.change_targets import writing
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.namespace.base import NamespaceBase, array_of, converted, is_number, namespace_of, type_of, weak_type
from shardcall.namespace.index_keys import as_values, check_broadcast, without_leading
from shardcall.namespace.indexing import setitem
from shardcall.namespace.integers import check_numbers
from shardcall_core.element_types import DType

MODES = ("raise", "wrap", "clip")
"""The treatments of indices that are out of range."""


def copyto(
    xp: NamespaceBase, dst: OperandLike, src: OperandLike, casting: Any = "same_kind", where: OperandLike = True
) -> None:
    """Copies values to the elements of an array on the mesh, as ``numpy.copyto``.

    Args:
        dst: [...] the array on the mesh.
        src: the values, which broadcast to the array.
        casting: the conversions to the element type of the array that are allowed.
        where: of bool, the elements to copy to; it broadcasts to the array.

    Raises:
        TypeError: for a conversion that ``casting`` does not allow, a mask of another element type.
        ValueError: for values and masks that do not broadcast to the array.
    """
    with writing(dst, "numpy.copyto") as target:
        _check_casting(src, target.dtype, casting)
        if src is dst and target.ndim:
            return
        src = array_of(src) if type(src) in (float, complex) else src  # which is cast as an array is
        here = find_remote_array(src)
        if where is True and here is not None and target._is_front_like(here):
            target._assign(xp.call("copy", here))
            return
        if where is True:
            target._assign(setitem(xp, target, ..., src))
            return
        mask = array_of(where)
        if isinstance(where, np.ndarray | np.generic) or mask is where:
            _check_mask(mask.dtype)
        mask = mask if mask.dtype == np.bool_ else mask.astype(np.bool_)
        if np.broadcast_shapes(mask.shape, target.shape) != target.shape:
            raise ValueError(f"could not broadcast where mask from shape {mask.shape} into shape {target.shape}")
        values = _in_type(xp, src, target.dtype)
        shape = without_leading(values, target.ndim)
        check_broadcast(shape, target.shape)
        values = namespace_of(xp, values).reshape(values, shape)
        target._assign(setitem(xp, target, ..., xp.where(mask, values, target)))


def put(xp: NamespaceBase, a: OperandLike, ind: OperandLike, v: OperandLike, mode: str = "raise") -> None:
    """Replaces elements of an array on the mesh at indices of the flattened array, as ``numpy.put``.

    Args:
        a: [...] the array on the mesh.
        ind: the indices, integers; of equal ones the last counts.
        v: the values, repeated if they are fewer than the indices.
        mode: what becomes of indices that there are not: ``"raise"``, ``"wrap"`` or ``"clip"``.

    Raises:
        IndexError: for indices of this process that there are not; for those on the mesh when the array is read.
        TypeError: for complex numbers of Python where the array has none, indices that are no integers.
        ValueError: for another mode.
    """
    with writing(a, "numpy.put") as target:
        new = _in_type(xp, v, target.dtype)
        indices, values = _indices(xp, ind), namespace_of(xp, new).reshape(new, -1)
        count, size = math.prod(type_of(indices).shape), target.size
        check_mode(mode)
        if count and not size:
            raise IndexError(f"a is of shape {target.shape}, without elements; replace none of them")
        if not count or not math.prod(values.shape):
            return
        indices = within(xp, indices, size, mode)
        new = _repeated(xp, values, count)
        if target.ndim:
            target._assign(setitem(xp, target, _coordinates(xp, indices, target.shape), new))
        else:
            target._assign(xp.reshape(setitem(xp, xp.reshape(target, -1), indices, new), ()))


def place(xp: NamespaceBase, arr: OperandLike, mask: OperandLike, vals: OperandLike) -> None:
    """Replaces the elements of an array on the mesh where a mask is true by values in turn, as ``numpy.place``.

    Args:
        arr: [...] the array on the mesh.
        mask: a number for each element, true if it is not zero.
        vals: the values of the first, the second and further elements, repeated if they are fewer.

    Raises:
        ValueError: for a mask of another size, and no values for an element.
        TypeError: for values that the element type does not hold.
    """
    with writing(arr, "numpy.place") as target:
        mask, values = _mask_of_size(xp, mask, target.shape), _flat_values(xp, vals, target.dtype)
        count = math.prod(values.shape)
        if not count:
            if bool(namespace_of(xp, mask).any(mask)):
                raise ValueError("vals has no values, and mask is true for an element; give one or more")
            return
        if count > 1:
            of_mask = namespace_of(xp, mask)
            ranks = of_mask.subtract(of_mask.cumsum(mask, 0, np.int64), 1)
            values = xp.take(values, of_mask.remainder(ranks, count))
        _replace_where(xp, target, mask, values)


def putmask(xp: NamespaceBase, a: OperandLike, mask: OperandLike, values: OperandLike) -> None:
    """Replaces the elements of an array on the mesh where a mask is true, as ``numpy.putmask``.

    Args:
        a: [...] the array on the mesh.
        mask: a number for each element, true if it is not zero.
        values: a value for each element, repeated if they are fewer.

    Raises:
        ValueError: for a mask of another size.
        TypeError: for values that the element type does not hold.
    """
    with writing(a, "numpy.putmask") as target:
        mask, new = _mask_of_size(xp, mask, target.shape), _flat_values(xp, values, target.dtype)
        if math.prod(new.shape):
            _replace_where(xp, target, mask, _repeated(xp, new, target.size))


def fill_diagonal(xp: NamespaceBase, a: OperandLike, val: OperandLike, wrap: bool = False) -> None:
    """Replaces the elements of an array on the mesh whose indices are equal, as ``numpy.fill_diagonal``.

    Args:
        a: [n, n, ...] the array on the mesh, or [rows, columns] a matrix.
        val: the values, repeated if they are fewer than the elements of the diagonal.
        wrap: whether the diagonal of a matrix with more rows goes on below, a row after each of its ends.

    Raises:
        ValueError: for an array of fewer axes, and more axes of several sizes.
    """
    with writing(a, "numpy.fill_diagonal") as target:
        shape = target.shape
        if len(shape) < 2:
            raise ValueError(f"a is of shape {shape}; fill_diagonal takes two axes or more")
        if len(shape) > 2 and len(set(shape)) > 1:
            raise ValueError(f"a is of shape {shape}; give axes of one size, or two axes")
        values = namespace_of(xp, new := as_values(val, target.dtype)).reshape(new, -1)
        flat = target.size if wrap or len(shape) > 2 else min(shape[1] ** 2, target.size)
        step = 1 + sum(math.prod(shape[i:]) for i in range(1, len(shape)))
        positions = np.arange(0, flat, step)
        if len(positions) and math.prod(values.shape):
            key = np.unravel_index(positions, shape)
            target._assign(setitem(xp, target, key, _repeated(xp, values, len(positions))))


def check_mode(mode: Any) -> None:
    """Checks the name of what becomes of indices that there are not.

    Raises:
        ValueError: for another one.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is not one of: {', '.join(MODES)}")


def within(xp: NamespaceBase, indices: Any, size: int, mode: str) -> Any:
    """Returns indices of an axis of a size, those that there are not wrapped or clipped if the mode says so."""
    functions = namespace_of(xp, indices)
    if mode == "wrap":
        return functions.remainder(functions.astype(indices, np.int64), size)
    return functions.clip(indices, 0, size - 1) if mode == "clip" else indices


def _check_casting(src: OperandLike, dtype: DType, casting: Any) -> None:
    if is_number(src):
        source: Any = np.result_type(dtype, weak_type(src))
        source = np.dtype(bool) if type(src) is bool else source
    else:
        source = type_of(src).dtype
    if not np.can_cast(source, dtype, casting):
        raise TypeError(f"src is of {source.name} and dst of {dtype.name}, which the rule {casting!r} does not allow")


def _check_mask(dtype: DType) -> None:
    if dtype != np.bool_:
        raise TypeError(f"where is of {dtype.name}; give a mask of bool")


def _in_type(xp: NamespaceBase, values: OperandLike, dtype: DType) -> Any:
    """Returns values in the element type of the array that takes them, as an assignment converts them."""
    new: Any = as_values(values, dtype)
    if new.dtype == dtype:
        return new
    if new.dtype.kind == "c":
        return xp.not_equal(new, 0) if dtype.kind == "b" else converted(xp, xp.real(new), dtype)
    return converted(xp, new, dtype)


def _flat_values(xp: NamespaceBase, values: OperandLike, dtype: DType) -> Any:
    """Returns values of one axis in the element type of the array that takes them.

    Raises:
        TypeError: for an array of another type that is not converted safely.
    """
    array = find_remote_array(values)
    is_typed = isinstance(values, np.ndarray) or (array is not None and not array._is_scalar)
    if is_typed and not np.can_cast(source := type_of(values).dtype, dtype, "safe"):
        raise TypeError(f"the values are of {source.name}, which is not converted safely to {dtype.name}; convert them")
    new = _in_type(xp, values, dtype)
    return namespace_of(xp, new).reshape(new, -1)


def _indices(xp: NamespaceBase, indices: OperandLike) -> Any:
    """Returns indices of one axis.

    Raises:
        TypeError: for an array that holds no integers.
    """
    array = array_of(indices)
    check_numbers("ind", array)
    if (isinstance(indices, np.ndarray) or array is indices) and not np.can_cast(array.dtype, np.int64, "safe"):
        raise TypeError(f"ind is of {array.dtype.name}; give integers")
    return namespace_of(xp, array).reshape(converted(xp, array, np.dtype(np.int64)), -1)


def _mask_of_size(xp: NamespaceBase, mask: OperandLike, shape: tuple[int, ...]) -> Any:
    """Returns a mask of one axis.

    Raises:
        ValueError: for another number of elements.
    """
    array = array_of(mask)
    if math.prod(array.shape) != math.prod(shape):
        raise ValueError(f"mask is of shape {array.shape} and the array of {shape}; give one for each element")
    functions = namespace_of(xp, array)
    array = array if array.dtype == np.bool_ else functions.not_equal(array, 0)
    return functions.reshape(array, -1)


def _coordinates(xp: NamespaceBase, indices: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Returns indices of the flattened array as indices of each axis; those that there are not, of no row."""
    functions, rest, others = namespace_of(xp, indices), indices, list[Any]()
    for size in reversed(shape[1:]):
        others.append(functions.remainder(rest, size))
        rest = functions.floor_divide(rest, size)
    return (rest, *reversed(others))


def _repeated(xp: NamespaceBase, values: Any, count: int) -> Any:
    """Returns as many values as there are elements to replace, or one for all."""
    size = math.prod(values.shape)
    if size in (1, count):
        return values if size == count else namespace_of(xp, values).reshape(values, ())
    return namespace_of(xp, values).take(values, np.arange(count) % size)


def _replace_where(xp: NamespaceBase, target: Any, mask: Any, values: Any) -> None:
    shape = target.shape
    if 0 in shape:
        return
    mask = namespace_of(xp, mask).reshape(mask, shape)
    values = namespace_of(xp, values).reshape(values, shape if math.prod(values.shape) > 1 else ())
    target._assign(setitem(xp, target, ..., xp.where(mask, values, target)))

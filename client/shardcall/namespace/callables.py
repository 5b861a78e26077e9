"""Functions that take functions of the caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, array_of, converted, counted_axis, namespace_of, part_of, type_of
from shardcall.namespace.creation import zeros_like
from shardcall.namespace.index_keys import as_values
from shardcall.namespace.shapes import moveaxis
from shardcall_core.types.errors import ParameterTypeError, TracingError


def apply_along_axis(
    xp: NamespaceBase, func1d: Callable[..., Any], axis: SupportsIndex, arr: OperandLike, *args: Any, **kwargs: Any
) -> Any:
    """Returns the results of a function of vectors for all of them along an axis, as ``numpy.apply_along_axis``.

    The function is traced once and computed for all vectors in one program, as of `Client.vmap`. A function that cannot
    be traced, since it needs values, is called for one vector after the other.

    Args:
        func1d: the function of an array of one axis; its result is one array, or a list of equal ones.
        axis: the axis.
        arr: [..., size, ...] the array.
        args: further arguments of the function.
        kwargs: its further arguments by name.

    Raises:
        ParameterTypeError: for what is no function.
        ValueError: if there are no vectors.
    """
    if not callable(func1d):
        raise ParameterTypeError(f"func1d is of {type(func1d).__name__}; give a function", field="func1d")
    x, along = array_of(arr), counted_axis(axis, type_of(arr).ndim)
    shape = type_of(x).shape
    outer = (*shape[:along], *shape[along + 1 :])
    if 0 in outer:
        raise ValueError(f"arr is of shape {shape} and has no vectors along axis {along}; give at least one")

    def of_vector(vector: Any) -> Any:
        return _stacked(xp, func1d(vector, *args, **kwargs))

    if not outer:
        return of_vector(x)
    rows = xp.reshape(moveaxis(xp, x, along, -1), (math.prod(outer), shape[along]))
    result = _of_all_rows(xp, of_vector, rows)
    inner = type_of(result).shape[1:]
    result = xp.reshape(result, (*outer, *inner))
    axes = [*range(len(outer), len(outer) + len(inner))]
    return moveaxis(xp, result, axes, [*range(along, along + len(inner))]) if axes else result


def apply_over_axes(xp: NamespaceBase, func: Callable[..., Any], a: OperandLike, axes: Any) -> Any:
    """Returns the result of a function of an array and an axis, axis after axis, as ``numpy.apply_over_axes``.

    Args:
        func: the function; its result has the axes of the array, or all but the one.
        a: [...] the array.
        axes: the axis or axes, which the result keeps.

    Raises:
        ValueError: for a result of other axes.
    """
    result, ndim = array_of(a), type_of(a).ndim
    for axis in np.atleast_1d(np.asarray(axes)).tolist():
        along = ndim + axis if axis < 0 else axis
        reduced = func(result, along)
        if type_of(reduced).ndim != ndim:
            reduced = namespace_of(xp, reduced).expand_dims(reduced, along)
        if type_of(reduced).ndim != ndim:
            raise ValueError(f"func returns an array of shape {type_of(result).shape}; give one that keeps the axes")
        result = reduced
    return result


def piecewise(xp: NamespaceBase, x: OperandLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Returns the values of functions where their conditions are true, as ``numpy.piecewise``.

    Every function is computed for all elements, so that nothing waits: it has to be one of single elements.

    Args:
        x: [...] the array.
        condlist: the conditions, of its shape; of several that are true, the last counts.
        funclist: a function or a number for each condition, and one more for where none is true.
        args: further arguments of the functions.
        kw: their further arguments by name.

    Raises:
        ValueError: for another number of functions.
    """
    x = array_of(x)
    conditions = _conditions(condlist, type_of(x).ndim)
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ValueError(
            f"{len(conditions)} conditions and {len(funclist)} functions; give one for each condition, or one more"
        )
    result, dtype = zeros_like(xp, x), type_of(x).dtype
    functions = [*funclist]
    if len(functions) > len(conditions):
        otherwise = functions.pop()
        result = xp.where(True, _value(xp, otherwise, x, dtype, args, kw), result)
    for condition, function in zip(conditions, functions, strict=True):
        result = xp.where(_fitted(xp, condition, type_of(x).shape), _value(xp, function, x, dtype, args, kw), result)
    return result


def _of_all_rows(xp: NamespaceBase, function: Callable[[Any], Any], rows: Any) -> Any:
    """Returns the results of a function of the rows of a matrix, stacked."""
    vmap = getattr(xp._client, "vmap", None)
    if vmap is not None:
        try:
            return vmap(function)(rows)
        except TracingError:
            if not hasattr(rows, "get"):
                raise
    first, *others = (function(part_of(rows, i)) for i in range(type_of(rows).shape[0]))
    return xp.stack([first, *(converted(xp, item, type_of(first).dtype) for item in others)])


def _stacked(xp: NamespaceBase, value: Any) -> Any:
    """Returns a result of a function, or several in a list, as one array on the mesh."""
    if isinstance(value, list | tuple) and value and not all(map(np.isscalar, value)):
        return xp.stack([_stacked(xp, item) for item in value])
    return xp.asarray(value)  # type: ignore[attr-defined]


def _conditions(condlist: Any, ndim: int) -> list[Any]:
    """Returns conditions: several if the first one is an array, or if the array has no axes; else one."""
    is_array = isinstance(condlist, np.ndarray | ArrayProperties)
    if not is_array and not isinstance(condlist, Sequence):
        return [condlist]
    length = len(condlist) if not is_array or condlist.ndim else 0
    if not length:
        return [condlist]
    first = condlist[0]
    has_axes = isinstance(first, list | np.ndarray) or (isinstance(first, ArrayProperties) and first.ndim > 0)
    return [condlist[i] for i in range(length)] if has_axes or not ndim else [condlist]


def _fitted(xp: NamespaceBase, condition: Any, shape: tuple[int, ...]) -> Any:
    """Returns a condition of bool, of as many axes as an array of a shape.

    Raises:
        IndexError: for a condition of another shape.
    """
    condition = converted(xp, condition, np.dtype(np.bool_))
    sizes = type_of(condition).shape
    if any(count not in (1, size) for count, size in zip(sizes, shape, strict=False)):
        raise IndexError(f"a condition is of shape {sizes} and x of {shape}; give one for each element")
    behind = len(shape) - len(sizes)
    return namespace_of(xp, condition).expand_dims(condition, tuple(range(-behind, 0))) if behind > 0 else condition


def _value(xp: NamespaceBase, function: Any, x: Any, dtype: Any, args: Any, kw: Any) -> Any:
    value = function(x, *args, **kw) if callable(function) else function
    if type(value) in (bool, int, float):
        return as_values(value, dtype)
    if type_of(value).dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(f"a value is of {type_of(value).dtype.name} and x of {dtype.name}; give real numbers")
    return converted(xp, value, dtype)

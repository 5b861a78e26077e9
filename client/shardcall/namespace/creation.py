"""Functions that create arrays on the mesh, whose values are computed on the devices.

Arrays that are created with a mesh or a spec are committed to its devices. The others move to the devices of a
committed array that a call takes beside them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, Unpack

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike, as_operand
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.namespace.base import NamespaceBase, copied, type_of, value_of
from shardcall.namespace.destinations import Destination, LikeOptions, Shape, check_device, created, creating
from shardcall.namespace.integers import integer
from shardcall.namespace.ranges import arange
from shardcall_core.types.element_types import parse_dtype


@creating
def full(
    xp: NamespaceBase,
    shape: Shape,
    fill_value: OperandLike,
    dtype: npt.DTypeLike | None = None,
    **to: Unpack[Destination],
) -> Any:
    """Returns an array with one value everywhere, as ``numpy.full``; an array of values is broadcast.

    Args:
        shape: the size of each axis.
        fill_value: the value, or an array that broadcasts to the shape.
        dtype: the element type; None for that of the value.
        to: see `Destination`.
    """
    value = asarray(xp, fill_value, dtype) if find_remote_array(fill_value) is not None else None
    if value is None:
        value = _filled(fill_value, dtype)
    sizes = _sizes(shape)
    return copied(created(xp, "full" if not value.ndim else "broadcast_to", value, to=to, shape=sizes))


@creating
def zeros(xp: NamespaceBase, shape: Shape, dtype: npt.DTypeLike = np.float64, **to: Unpack[Destination]) -> Any:
    """Returns an array of zeros, as ``numpy.zeros``."""
    return full(xp, shape, 0, _or_default(dtype), **to)


@creating
def ones(xp: NamespaceBase, shape: Shape, dtype: npt.DTypeLike = np.float64, **to: Unpack[Destination]) -> Any:
    """Returns an array of ones, as ``numpy.ones``."""
    return full(xp, shape, 1, _or_default(dtype), **to)


@creating
def empty(xp: NamespaceBase, shape: Shape, dtype: npt.DTypeLike = np.float64, **to: Unpack[Destination]) -> Any:
    """Returns an array of zeros, which ``numpy.empty`` leaves open."""
    return zeros(xp, shape, dtype, **to)


@creating
def full_like(
    xp: NamespaceBase,
    x: OperandLike,
    /,
    fill_value: OperandLike,
    dtype: npt.DTypeLike | None = None,
    *,
    shape: Shape | None = None,
    **to: Unpack[Destination],
) -> Any:
    """Returns an array like another with one value everywhere, as ``numpy.full_like``.

    Args:
        x: the array, whose devices and sharding the result has if its shape is the same.
        fill_value: the value, or an array that broadcasts to the shape.
        dtype: the element type; None for that of x.
        shape: the shape; None for that of x.
        to: see `Destination`.
    """
    array_type = type_of(x)
    dtype = array_type.dtype if dtype is None else dtype
    here = find_remote_array(x)
    is_scalar = find_remote_array(fill_value) is None and not np.ndim(fill_value)  # type: ignore[arg-type]
    if here is None or not is_scalar or shape is not None:
        return full(xp, array_type.shape if shape is None else shape, fill_value, dtype, **to)
    return created(xp, "full_like", here, _filled(fill_value, dtype), to=to)


@creating
def zeros_like(
    xp: NamespaceBase, x: OperandLike, /, dtype: npt.DTypeLike | None = None, **to: Unpack[LikeOptions]
) -> Any:
    """Returns an array of zeros like another, as ``numpy.zeros_like``; see `full_like`."""
    return full_like(xp, x, 0, dtype, **to)


@creating
def ones_like(
    xp: NamespaceBase, x: OperandLike, /, dtype: npt.DTypeLike | None = None, **to: Unpack[LikeOptions]
) -> Any:
    """Returns an array of ones like another, as ``numpy.ones_like``; see `full_like`."""
    return full_like(xp, x, 1, dtype, **to)


@creating
def empty_like(
    xp: NamespaceBase, x: OperandLike, /, dtype: npt.DTypeLike | None = None, **to: Unpack[LikeOptions]
) -> Any:
    """Returns an array of zeros like another, which ``numpy.empty_like`` leaves open; see `full_like`."""
    return full_like(xp, x, 0, dtype, **to)


@creating
def eye(
    xp: NamespaceBase,
    N: SupportsIndex,  # noqa: N803  # NumPy's name
    M: SupportsIndex | None = None,  # noqa: N803
    /,
    k: SupportsIndex = 0,
    dtype: npt.DTypeLike = np.float64,
    **to: Unpack[Destination],
) -> Any:
    """Returns ones on a diagonal and zeros elsewhere, as ``numpy.eye``.

    Args:
        N: the number of rows.
        M: the number of columns; None for as many.
        k: the diagonal; 0 for the main one, positive above it.
        dtype: the element type.
        to: see `Destination`.
    """
    shape = integer("N", N), integer("M", N if M is None else M)
    diagonal = np.int64(max(min(integer("k", k), shape[1]), -shape[0]))
    return created(xp, "eye", diagonal, to=to, shape=shape, dtype=parse_dtype(_or_default(dtype)).name)


@creating
def identity(xp: NamespaceBase, n: SupportsIndex, dtype: npt.DTypeLike = np.float64, **to: Unpack[Destination]) -> Any:
    """Returns the identity matrix of n rows, as ``numpy.identity``."""
    return eye(xp, n, dtype=dtype, **to)


@creating
def tri(
    xp: NamespaceBase,
    N: SupportsIndex,  # noqa: N803  # NumPy's name
    M: SupportsIndex | None = None,  # noqa: N803
    k: int = 0,
    dtype: npt.DTypeLike = np.float64,
    **to: Unpack[Destination],
) -> Any:
    """Returns ones at and below a diagonal and zeros above it, as ``numpy.tri``."""
    return xp.tril(ones(xp, (N, N if M is None else M), dtype, **to), k)


@creating
def asarray(
    xp: NamespaceBase,
    obj: OperandLike,
    /,
    dtype: npt.DTypeLike | None = None,
    *,
    copy: bool | None = None,
    **to: Unpack[Destination],
) -> Any:
    """Returns an array on the mesh of any array, number or nested lists of numbers, as ``numpy.asarray``.

    Args:
        obj: the array; one on the mesh stays where it is, unless there is a mesh or a spec.
        dtype: the element type; None for its own.
        copy: True for a copy in any case, False for an error if there must be one.
        to: see `Destination`.

    Raises:
        ValueError: if there must be a copy and it is not allowed.
    """
    check_device(to)
    requested = None if dtype is None else parse_dtype(dtype)
    here = find_remote_array(obj)
    if here is None:
        if copy is False:
            raise ValueError("an array of this process cannot be on the mesh without a copy; leave out copy=False")
        array = as_operand(obj, "obj")
        array = array if requested is None else array.astype(requested)
        result = xp._client._put_array(array, to.get("mesh"), to.get("spec"))
        result._is_ndarray = True
        return result
    moves = to.get("mesh") is not None or to.get("spec") is not None
    # Not `in (None, …)`: NumPy takes None for float64, which equals it.
    has_type = requested is None or requested == here.dtype
    if has_type and not moves:
        return copied(here) if copy else here
    if copy is False:
        raise ValueError("another element type or placement needs a copy; leave out copy=False")
    typed = here if has_type else xp.astype(here, requested)
    return created(xp, "reshard", typed, to=to) if moves else typed


@creating
def array(
    xp: NamespaceBase,
    obj: OperandLike,
    /,
    dtype: npt.DTypeLike | None = None,
    *,
    copy: bool | None = True,
    **to: Unpack[Destination],
) -> Any:
    """Returns an array on the mesh, as ``numpy.array``: as `asarray`, but a copy by default."""
    return asarray(xp, obj, dtype, copy=copy, **to)


@creating
def from_dlpack(xp: NamespaceBase, x: Any, /, *, copy: bool | None = None, **to: Unpack[Destination]) -> Any:
    """Returns an array on the mesh of an array that supports DLPack, as ``numpy.from_dlpack``."""
    return asarray(xp, x, copy=copy, **to)


def meshgrid(
    xp: NamespaceBase, *xi: OperandLike, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Any, ...]:
    """Returns the coordinates of the points of a grid, as ``numpy.meshgrid``.

    Args:
        xi: [n] the coordinates along each axis.
        copy: False for views of coordinates that are on the mesh, read-only unless they are sparse.
        sparse: whether results have one element along the axes along which they are constant.
        indexing: ``"xy"`` for a grid of rows and columns, ``"ij"`` for axes in the given sequence.

    Raises:
        ValueError: for another indexing, and for arrays of this process that are not to be copied.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing={indexing!r}; give 'xy' or 'ij'")
    if not copy and any(isinstance(coordinates, np.ndarray) for coordinates in xi):
        raise ValueError("an array of this process cannot be on the mesh without a copy; leave out copy=False")
    axes = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        axes[:2] = 1, 0
    sizes = [0] * len(xi)
    for axis, coordinates in zip(axes, xi, strict=True):
        sizes[axis] = math.prod(type_of(coordinates).shape)
    grids = []
    for axis, coordinates in zip(axes, xi, strict=True):
        column = xp.reshape(coordinates, [-1 if i == axis else 1 for i in range(len(xi))])
        grid = column if sparse or column.shape == (*sizes,) else xp.broadcast_to(column, sizes)
        grids.append(copied(grid) if copy else grid)
    return tuple(grids)


def fromfunction(
    xp: NamespaceBase,
    /,
    function: Callable[..., Any],
    shape: Sequence[int],
    *,
    dtype: npt.DTypeLike = np.float64,
    **kwargs: Any,
) -> Any:
    """Returns a function of the indices of an array, as ``numpy.fromfunction``."""
    return function(*meshgrid(xp, *(arange(xp, n, dtype=dtype) for n in shape), indexing="ij"), **kwargs)


def _or_default(dtype: npt.DTypeLike) -> npt.DTypeLike:
    return np.float64 if dtype is None else dtype


def _sizes(shape: Shape) -> tuple[int, ...]:
    sizes = value_of(shape)
    is_one = isinstance(sizes, SupportsIndex) and not getattr(sizes, "ndim", 0)
    return tuple(map(operator.index, (sizes,) if is_one else sizes))


def _filled(value: OperandLike, dtype: npt.DTypeLike | None) -> Any:
    array = np.asarray(value)
    if dtype is None:
        return as_operand(array, "fill_value")
    parsed = parse_dtype(dtype)
    result = np.empty(array.shape, parsed)
    np.copyto(result, value, casting="unsafe")  # type: ignore[arg-type]  # refuses Python integers that do not fit
    return result

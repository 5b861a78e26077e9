"""Functions that join arrays, take them apart and rotate them: stack, concatenate, split, rot90."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods import KernelMethods
from shardcall.namespace.base import (
    NamespaceBase,
    array_of,
    converted,
    counted_axis,
    is_number,
    namespace_of,
    part_of,
    type_of,
    weak_type,
)
from shardcall.namespace.integers import integer
from shardcall_core.types.element_types import parse_dtype


def atleast_1d(xp: NamespaceBase, *arrays: OperandLike) -> Any:
    """Returns arrays with one axis or more, as ``numpy.atleast_1d``; several as a tuple."""
    return _reshaped(xp, arrays, lambda _, ndim: (1,) if not ndim else None)


def atleast_2d(xp: NamespaceBase, *arrays: OperandLike) -> Any:
    """Returns arrays with two axes or more, as ``numpy.atleast_2d``; several as a tuple."""
    return _reshaped(xp, arrays, lambda _, ndim: (1, -1) if ndim < 2 else None)


def atleast_3d(xp: NamespaceBase, *arrays: OperandLike) -> Any:
    """Returns arrays with three axes or more, as ``numpy.atleast_3d``; several as a tuple."""

    def shape(x: OperandLike, ndim: int) -> tuple[int, ...] | None:
        return (1, -1, 1) if ndim < 2 else (*type_of(x).shape, 1) if ndim == 2 else None

    return _reshaped(xp, arrays, shape)


def concatenate(  # with NumPy's keywords
    xp: NamespaceBase,
    arrays: Sequence[OperandLike],
    axis: SupportsIndex | None = 0,
    *,
    dtype: npt.DTypeLike | None = None,
    casting: Any = "same_kind",
    **options: Any,
) -> Any:
    """Returns arrays joined along an axis, as ``numpy.concatenate``.

    Args:
        arrays: the arrays, of one shape but for the axis.
        axis: the axis; None flattens the arrays.
        dtype: the element type of the result; None for the one that the arrays have in common.
        casting: the conversions to the element type that are allowed.
        options: those of `Client.concatenate`.

    Raises:
        TypeError: for a conversion that ``casting`` does not allow.
    """
    if axis is None and dtype is None and any(map(is_number, arrays)):  # which have no type of their own here
        common = np.result_type(*map(weak_type, arrays))
        arrays = [converted(xp, array, common) if is_number(array) else array for array in arrays]
    return KernelMethods.concatenate(xp, _in_type(xp, arrays, dtype, casting), axis, **options)


def stack(  # with NumPy's keywords
    xp: NamespaceBase,
    arrays: Sequence[OperandLike],
    axis: SupportsIndex = 0,
    *,
    dtype: npt.DTypeLike | None = None,
    casting: Any = "same_kind",
    **options: Any,
) -> Any:
    """Returns arrays joined along a new axis, as ``numpy.stack``; the keywords are those of `concatenate`."""
    return KernelMethods.stack(xp, _in_type(xp, arrays, dtype, casting), axis, **options)


def hstack(
    xp: NamespaceBase,
    tup: Sequence[OperandLike],
    *,
    dtype: npt.DTypeLike | None = None,
    casting: Any = "same_kind",
) -> Any:
    """Returns arrays joined along their second axis, their only one of vectors, as ``numpy.hstack``."""
    arrays = [atleast_1d(xp, array) for array in tup]
    along = 0 if not arrays or type_of(arrays[0]).ndim == 1 else 1
    return concatenate(xp, arrays, along, dtype=dtype, casting=casting)


def vstack(
    xp: NamespaceBase,
    tup: Sequence[OperandLike],
    *,
    dtype: npt.DTypeLike | None = None,
    casting: Any = "same_kind",
) -> Any:
    """Returns arrays joined along their first axis, vectors as rows, as ``numpy.vstack``."""
    return concatenate(xp, [atleast_2d(xp, array) for array in tup], 0, dtype=dtype, casting=casting)


def dstack(xp: NamespaceBase, tup: Sequence[OperandLike]) -> Any:
    """Returns arrays joined along their third axis, as ``numpy.dstack``."""
    return xp.concatenate([atleast_3d(xp, array) for array in tup], 2)


def column_stack(xp: NamespaceBase, tup: Sequence[OperandLike]) -> Any:
    """Returns arrays joined along their second axis, vectors as columns, as ``numpy.column_stack``."""
    columns = [array if type_of(array).ndim > 1 else namespace_of(xp, array).reshape(array, (-1, 1)) for array in tup]
    return xp.concatenate(columns, 1)


def array_split(_: NamespaceBase, ary: OperandLike, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Returns the parts of an array along an axis, as ``numpy.array_split``.

    Args:
        ary: [...] the array.
        indices_or_sections: the number of parts, or the indices at which they begin.
        axis: the axis.
    """
    ndim = type_of(ary).ndim
    axis = counted_axis(axis, ndim)
    size = type_of(ary).shape[axis]
    bounds = _bounds(size, indices_or_sections)
    key = [slice(None)] * ndim
    parts = []
    for bound in itertools.pairwise(bounds):
        key[axis] = slice(*bound)
        parts.append(part_of(ary, tuple(key)))
    return parts


def split(xp: NamespaceBase, ary: OperandLike, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Returns the parts of an array along an axis, of one size, as ``numpy.split``.

    Raises:
        ValueError: for a number of parts that does not divide the axis.
    """
    size = type_of(ary).shape[counted_axis(axis, type_of(ary).ndim)]
    if not np.ndim(indices_or_sections) and size % _count_of_parts(indices_or_sections):
        raise ValueError(f"{indices_or_sections} parts of one size do not make {size} elements; use array_split")
    return array_split(xp, ary, indices_or_sections, axis)


def hsplit(xp: NamespaceBase, ary: OperandLike, indices_or_sections: Any) -> list[Any]:
    """Returns the parts of an array along its second axis, its only one of a vector, as ``numpy.hsplit``."""
    return split(xp, ary, indices_or_sections, min(_ndim(ary, 1, "hsplit") - 1, 1))


def vsplit(xp: NamespaceBase, ary: OperandLike, indices_or_sections: Any) -> list[Any]:
    """Returns the parts of an array along its first axis, as ``numpy.vsplit``."""
    _ndim(ary, 2, "vsplit")
    return split(xp, ary, indices_or_sections, 0)


def dsplit(xp: NamespaceBase, ary: OperandLike, indices_or_sections: Any) -> list[Any]:
    """Returns the parts of an array along its third axis, as ``numpy.dsplit``."""
    _ndim(ary, 3, "dsplit")
    return split(xp, ary, indices_or_sections, 2)


def fliplr(xp: NamespaceBase, m: OperandLike) -> Any:
    """Returns an array with its second axis reversed, as ``numpy.fliplr``."""
    _ndim(m, 2, "fliplr")
    return xp.flip(m, 1)


def flipud(xp: NamespaceBase, m: OperandLike) -> Any:
    """Returns an array with its first axis reversed, as ``numpy.flipud``."""
    _ndim(m, 1, "flipud")
    return xp.flip(m, 0)


def rot90(xp: NamespaceBase, m: OperandLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    """Returns an array rotated by quarters of a circle, from the first of two axes to the second."""
    ndim = type_of(m).ndim
    first, second = (axis % max(ndim, 1) for axis in axes)
    if first == second or any(not -ndim <= axis < ndim for axis in axes):
        raise ValueError(f"axes={tuple(axes)} and m has {ndim} axes; name two of them")
    exchanged = [second if i == first else first if i == second else i for i in range(ndim)]
    match integer("k", k, lambda quarters: quarters % 4):
        case 0:
            return part_of(m, slice(None))
        case 1:
            return xp.transpose(xp.flip(m, second), exchanged)
        case 2:
            return xp.flip(m, (first, second))
    return xp.flip(xp.transpose(m, exchanged), second)


def _reshaped(xp: NamespaceBase, arrays: Sequence[OperandLike], shape: Any) -> Any:
    results = []
    for array in arrays:
        sizes = shape(array, type_of(array).ndim)
        as_it_is = array_of(array)
        results.append(as_it_is if sizes is None else namespace_of(xp, array).reshape(as_it_is, sizes))
    return results[0] if len(results) == 1 else tuple(results)


def _in_type(
    xp: NamespaceBase, arrays: Sequence[OperandLike], dtype: npt.DTypeLike | None, casting: Any
) -> Sequence[OperandLike]:
    """Returns arrays in the element type of what is joined from them."""
    if dtype is None and casting == "same_kind":
        return arrays
    types = [type_of(array).dtype for array in arrays]
    target = np.result_type(*types) if dtype is None else parse_dtype(dtype)
    for i, source in enumerate(types):
        if not np.can_cast(source, target, casting):
            raise TypeError(
                f"arrays[{i}] is of {source.name} and the result of {target.name}, which the rule {casting!r} does "
                "not allow"
            )
    return [converted(xp, array, target) for array in arrays]


def _bounds(size: int, indices_or_sections: Any) -> list[int]:
    """Returns the indices at which parts begin, and the end of the last."""
    if isinstance(indices_or_sections, Iterable):
        return [0, *(integer("indices_or_sections", index) for index in indices_or_sections), size]
    count = _count_of_parts(indices_or_sections)
    size_of_section, larger = divmod(size, count)
    return [i * size_of_section + min(i, larger) for i in range(count + 1)]


def _count_of_parts(sections: Any) -> int:
    count = integer("indices_or_sections", sections, int)
    if count <= 0:
        raise ValueError(f"{count} parts; give 1 or more")
    return count


def _ndim(x: OperandLike, min_ndim: int, name: str) -> int:
    ndim = type_of(x).ndim
    if ndim < min_ndim:
        raise ValueError(f"an array of {ndim} axes; {name} takes {min_ndim} or more")
    return ndim

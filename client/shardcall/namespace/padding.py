"""Arrays with more elements around them, in all of NumPy's modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall.methods import KernelMethods
from shardcall.methods.conversions import pairs_of
from shardcall.namespace.base import NamespaceBase, converted, part_of, type_of, value_of
from shardcall.namespace.index_keys import as_values
from shardcall.namespace.quantiles import median
from shardcall_core.element_types import DType

_KEYWORDS: Mapping[str, str] = {
    **dict.fromkeys(("edge", "wrap", "empty"), ""),
    **dict.fromkeys(("maximum", "mean", "median", "minimum"), "stat_length"),
    **dict.fromkeys(("reflect", "symmetric"), "reflect_type"),
    "constant": "constant_values",
    "linear_ramp": "end_values",
}
"""The keyword of each mode."""

Pairs = Sequence[tuple[Any, Any]]
"""A number before and one behind each axis."""


def pad(
    xp: NamespaceBase, x: OperandLike, pad_width: Any, mode: Any = "constant", constant_values: Any = ..., *,
    end_values: Any = ..., stat_length: Any = ..., reflect_type: Any = ..., **options: Any,
) -> Any:  # fmt: skip
    """Returns an array with rows before and behind each axis, as ``numpy.pad``.

    Args:
        x: [...] the array.
        pad_width: the number of rows: one for all, one before and one behind, or such a pair for each axis; or a
            dict of them by axis.
        mode: ``"constant"``, ``"edge"``, ``"empty"``, ``"linear_ramp"``, ``"maximum"``, ``"mean"``, ``"median"``,
            ``"minimum"``, ``"reflect"``, ``"symmetric"`` or ``"wrap"``. New elements of ``"empty"`` are 0.
        constant_values: the new elements of the mode ``"constant"``, given as ``pad_width``; 0 by default.
        end_values: the outermost elements of the mode ``"linear_ramp"``, given likewise; 0 by default. Elements that an
            integer type does not hold wrap around, as in NumPy.
        stat_length: how many rows at each edge are reduced, given likewise; None for all.
        reflect_type: ``"even"``, or ``"odd"`` for twice the edge less the reflected elements.
        options: those of `Client.pad`, for the modes that are a kernel.

    Raises:
        TypeError: for a function as the mode, and None as a value.
        ValueError: for another mode, and a keyword of another mode.
        OverflowError: for an integer in constant_values that the type of x does not hold.
    """
    if callable(mode):
        raise TypeError("mode is a function, which would write to rows of the array; numpy.pad(x.get(), …) runs it")
    _check_keywords(
        mode,
        constant_values=constant_values,
        end_values=end_values,
        stat_length=stat_length,
        reflect_type=reflect_type,
    )
    if mode == "empty":
        return KernelMethods.pad(xp, x, pad_width, **options)
    if mode in ("edge", "wrap") or (mode in ("reflect", "symmetric") and reflect_type != "odd"):
        return KernelMethods.pad(xp, x, pad_width, mode, **options)
    if mode == "constant" and (constant_values is ... or not type_of(constant_values).ndim):
        value = None if constant_values is ... else constant_values
        if value is not None:
            value = value if find_remote_array(value) is not None else np.asarray(value)[()]
            value = as_values(value, type_of(x).dtype)
        return KernelMethods.pad(xp, x, pad_width, mode, value, **options)
    shape = type_of(x).shape
    widths = _widths(pad_width, len(shape))
    if 0 in shape and mode != "constant":
        return KernelMethods.pad(xp, x, pad_width, "edge", **options)  # which refuses what has no edges
    if options:
        raise TypeError(f"mode={mode!r} combines several calls, which take no {sorted(options)[0]}=")
    if mode == "constant":
        return _with_constants(xp, x, widths, _pairs(value_of(constant_values), len(shape)))
    if mode == "linear_ramp":
        return _with_ramps(xp, x, widths, _pairs(value_of(0 if end_values is ... else end_values), len(shape)))
    if mode in ("reflect", "symmetric"):
        for axis, (before, behind) in enumerate(widths):
            x = _reflected(xp, x, axis, before, behind, is_symmetric=mode == "symmetric")
        return xp.copy(x) if not shape else x
    lengths = (
        [(None, None)] * len(shape)
        if stat_length is None or stat_length is ...
        else _widths(stat_length, len(shape), "stat_length")
    )
    return _with_statistics(xp, x, widths, lengths, mode)


def _check_keywords(mode: Any, **keywords: Any) -> None:
    if mode not in _KEYWORDS:
        raise ValueError(f"mode={mode!r} is not one of: {', '.join(sorted(_KEYWORDS))}")
    for name, value in keywords.items():
        if value is not ... and name != _KEYWORDS[mode]:
            raise ValueError(f"mode={mode!r} takes no {name}; leave it out")
        if value is None and name in ("constant_values", "end_values"):
            raise TypeError(f"{name} is None; give numbers, or leave it out for 0")


def _with_constants(xp: NamespaceBase, x: Any, widths: Pairs, values: Pairs) -> Any:
    dtype, ndim = type_of(x).dtype, len(widths)
    for axis, (pair, ends) in enumerate(zip(widths, values, strict=True)):
        first, last = (as_values(end, dtype) for end in ends)
        if first == last:
            x = KernelMethods.pad(xp, x, _pairs_of_axis(axis, ndim, *pair), "constant", first)
            continue
        x = KernelMethods.pad(xp, x, _pairs_of_axis(axis, ndim, pair[0], 0), "constant", first)
        x = KernelMethods.pad(xp, x, _pairs_of_axis(axis, ndim, 0, pair[1]), "constant", last)
    return x if ndim else xp.copy(x)


def _with_ramps(xp: NamespaceBase, x: Any, widths: Pairs, ends: Pairs) -> Any:
    dtype = type_of(x).dtype
    for axis, ((before, behind), (first, last)) in enumerate(zip(widths, ends, strict=True)):
        edges = _row(x, axis, 0), _row(x, axis, -1)
        left = _ramp(xp, edges[0], axis, before, first, dtype)
        right = xp.flip(_ramp(xp, edges[1], axis, behind, last, dtype), axis)
        x = _joined(xp, left if before else None, x, right if behind else None, axis)
    return x if widths else xp.copy(x)


def _ramp(xp: NamespaceBase, edge: Any, axis: int, count: int, end: Any, dtype: DType) -> Any:
    """Returns numbers from an end towards the edge of an array, without the edge."""
    common = np.result_type(dtype, np.asarray(end).dtype, np.float64)
    index = np.arange(count).reshape([-1 if i == axis else 1 for i in range(type_of(edge).ndim)])
    end = np.asarray(end).astype(common)
    step = xp.divide(xp.subtract(converted(xp, edge, common), end), max(count, 1))
    ramp = xp.add(xp.multiply(index.astype(common), step), end)
    if dtype.kind not in "iu":
        return converted(xp, ramp, dtype)
    ramp = xp.floor(ramp)
    wrapped = converted(xp, converted(xp, ramp, np.dtype(np.int64)), dtype)
    return xp.where(xp.less(ramp, 0), wrapped, converted(xp, ramp, dtype)) if dtype == np.uint64 else wrapped


def _with_statistics(xp: NamespaceBase, x: Any, widths: Pairs, lengths: Pairs, mode: str) -> Any:
    if mode in ("maximum", "minimum") and any(0 in pair for pair in lengths):
        raise ValueError(f"stat_length is 0, and {mode} takes one row or more")
    for axis, ((before, behind), pair) in enumerate(zip(widths, lengths, strict=True)):
        size = type_of(x).shape[axis]
        first, last = (size if length is None else min(length, size) for length in pair)
        left = _statistic(xp, _part(x, axis, 0, first), axis, mode, type_of(x).dtype)
        right = left
        if not first == last == size:
            right = _statistic(xp, _part(x, axis, size - last, size), axis, mode, type_of(x).dtype)
        x = _joined(xp, *_wide(xp, left, axis, before), x, *_wide(xp, right, axis, behind), axis)
    return x if widths else xp.copy(x)


def _statistic(xp: NamespaceBase, part: Any, axis: int, mode: str, dtype: DType) -> Any:
    reduced = {"maximum": xp.max, "minimum": xp.min, "mean": xp.mean, "median": partial(median, xp)}[mode]
    value = reduced(part, axis, keepdims=True)
    if value.dtype == dtype:
        return value
    if dtype.kind == "b":
        return xp.not_equal(value, 0)
    return converted(xp, xp.rint(value) if dtype.kind in "iu" else value, dtype)


def _wide(xp: NamespaceBase, row: Any, axis: int, count: int) -> tuple[Any]:
    shape = type_of(row).shape
    return (xp.broadcast_to(row, (*shape[:axis], count, *shape[axis + 1 :])) if count else None,)


def _reflected(xp: NamespaceBase, x: Any, axis: int, before: int, behind: int, *, is_symmetric: bool) -> Any:
    """Returns an array extended by reflections that are odd: twice the edge less the reflected elements."""
    dtype, period = type_of(x).dtype, type_of(x).shape[axis]
    if period == 1:
        return KernelMethods.pad(xp, x, _pairs_of_axis(axis, type_of(x).ndim, before, behind), "edge")
    skipped = 0 if is_symmetric else 1  # the edge itself
    while before or behind:
        size = type_of(x).shape[axis]
        usable = (size - skipped) // (period - skipped) * (period - skipped)
        parts = []
        for count, edge, start in ((before, 0, skipped), (behind, -1, None)):
            length = min(usable, count)
            first = start if start is not None else size - skipped - length
            chunk = xp.flip(_part(x, axis, first, first + length), axis)
            parts.append(_odd(xp, _row(x, axis, edge), chunk, dtype) if length else None)
            before, behind = (before - length, behind) if edge == 0 else (before, behind - length)
        x = _joined(xp, parts[0], x, parts[1], axis)
    return x


def _odd(xp: NamespaceBase, edge: Any, chunk: Any, dtype: DType) -> Any:
    """Returns twice an edge less other elements."""
    if dtype.kind == "b":
        return xp.not_equal(_odd(xp, xp.astype(edge, np.int8), xp.astype(chunk, np.int8), np.dtype(np.int8)), 0)
    return xp.subtract(xp.multiply(edge, np.asarray(2).astype(dtype)), chunk)


def _joined(xp: NamespaceBase, left: Any, x: Any, right: Any, axis: int) -> Any:
    parts = [part for part in (left, x, right) if part is not None]
    return xp.concatenate(parts, axis) if len(parts) > 1 else x


def _row(x: Any, axis: int, index: int) -> Any:
    """Returns the first or the last row of an axis, which stays."""
    return part_of(x, (*(slice(None),) * axis, slice(index, index + 1 or None)))


def _part(x: Any, axis: int, start: int, end: int) -> Any:
    return part_of(x, (*(slice(None),) * axis, slice(start, end)))


def _pairs_of_axis(axis: int, ndim: int, before: int, behind: int) -> list[tuple[int, int]]:
    return [(before, behind) if i == axis else (0, 0) for i in range(ndim)]


def _widths(widths: Any, ndim: int, name: str = "pad_width") -> list[tuple[int, int]]:
    """Returns numbers of rows before and behind each axis.

    Raises:
        TypeError: for what are no integers.
        ValueError: for negative numbers, and another number of pairs.
    """
    if isinstance(widths, dict):
        widths = pairs_of(widths, ndim)
    numbers = np.asarray(value_of(widths))
    if numbers.dtype.kind != "i" and (name == "pad_width" or numbers.dtype.kind not in "uf"):
        raise TypeError(f"{name} is of {numbers.dtype.name}; give integers")
    numbers = np.round(numbers).astype(np.int64)
    if (numbers < 0).any():
        raise ValueError(f"{name} has negative numbers; give 0 or more")
    return [(int(before), int(behind)) for before, behind in _pairs(numbers, ndim)]


def _pairs(values: Any, ndim: int) -> list[tuple[Any, Any]]:
    """Returns a value before and one behind each axis, broadcast as NumPy does: more than two are Python's numbers.

    Raises:
        ValueError: for another number of values.
    """
    array = np.asarray(values)
    array = array.ravel() if array.ndim < 3 and array.size == 1 else array
    array = array.ravel() if array.ndim < 3 and array.size == 2 and array.shape != (2, 1) else array
    pairs = np.broadcast_to(array, (ndim, 2))
    return [(before, behind) for before, behind in (pairs if array.size < 3 else pairs.tolist())]

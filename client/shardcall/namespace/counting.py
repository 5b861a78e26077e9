"""Histograms, counts of integers, and positions among sorted numbers."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, converted, namespace_of, part_of, type_of, value_of
from shardcall.namespace.integers import integer
from shardcall.namespace.statistics import can_be_nan
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import ParameterTypeError


def searchsorted(  # with NumPy's fourth argument
    xp: NamespaceBase,
    a: OperandLike,
    v: OperandLike,
    side: str = "left",
    sorter: OperandLike | None = None,
    **options: Any,
) -> Any:
    """Returns the positions at which numbers keep an array sorted, as ``numpy.searchsorted``.

    Args:
        a: [size] the array, sorted or in the order of ``sorter``.
        v: [...] the numbers.
        side: the position among equal numbers, ``"left"`` or ``"right"`` of them.
        sorter: [size] the indices that sort ``a``; None if it is sorted.
        options: those of `Client.searchsorted`.

    Raises:
        TypeError: for a sorter of other elements than integers, or of several axes.
        ValueError: for a sorter of another length than ``a``.
    """
    if sorter is not None:
        sorter_type = type_of(sorter)
        if sorter_type.dtype.kind not in "iu" or sorter_type.ndim != 1:
            raise TypeError(f"sorter is {sorter_type}; give integers of one axis")
        if sorter_type.shape != type_of(a).shape:
            raise ValueError(
                f"sorter is {sorter_type} and a of shape {type_of(a).shape}; give an index for each element"
            )
        a = xp.take(a, sorter)
    if "c" in (type_of(a, "a").dtype.kind, type_of(v, "v").dtype.kind) and type_of(a).ndim == 1:
        return _complex_positions(xp, a, v, side)
    return xp.call("searchsorted", a, v, side=side, **options)


def _complex_positions(xp: NamespaceBase, a: OperandLike, v: OperandLike, side: str) -> Any:
    """Returns positions among complex numbers, by sorting both together, which keeps the sequence of equal ones."""
    if side not in ("left", "right"):
        raise ValueError(f"side={side!r} is not one of: left, right")
    dtype, shape = np.result_type(type_of(a).dtype, type_of(v).dtype), type_of(v).shape
    numbers = xp.reshape(converted(xp, v, dtype), -1)
    count, size = type_of(numbers).shape[0], type_of(a).shape[0]
    is_left = side == "left"
    together = [numbers, converted(xp, a, dtype)] if is_left else [converted(xp, a, dtype), numbers]
    permutation = xp.argsort(xp.concatenate(together))
    ranks = xp.argsort(permutation)
    before = xp.cumsum(xp.less(permutation, count) if is_left else xp.greater_equal(permutation, size), 0)
    positions = part_of(ranks, slice(0, count) if is_left else slice(size, None))
    return xp.reshape(xp.subtract(positions, xp.subtract(xp.take(before, positions), 1)), shape)


def digitize(xp: NamespaceBase, x: OperandLike, bins: OperandLike, right: bool = False) -> Any:
    """Returns the index of the bin of each number, as ``numpy.digitize``; waits for bins that are on the mesh.

    Args:
        x: [...] the numbers, real.
        bins: [bins] the edges, ascending or descending.
        right: whether bins include their right edges and not their left ones.

    Raises:
        ValueError: for edges in another order.
        TypeError: for complex numbers.
    """
    for name, operand in (("x", x), ("bins", bins)):
        if name == "bins" and type_of(bins, name).ndim != 1:
            raise ValueError(f"bins is of shape {type_of(bins).shape}; give an array of one axis")
        if type_of(operand, name).dtype.kind == "c":
            raise TypeError(f"{name} is of complex numbers; give real numbers")
    side = "left" if right else "right"
    on_bins = namespace_of(xp, bins)
    steps = on_bins.diff(bins)
    if bool(on_bins.all(on_bins.greater_equal(steps, 0))):
        return xp.searchsorted(bins, x, side)
    if not bool(on_bins.all(on_bins.less_equal(steps, 0))):
        raise ValueError("bins is neither ascending nor descending; sort it")
    return xp.subtract(type_of(bins).shape[0], xp.searchsorted(on_bins.flip(bins), x, side))


def bincount(xp: NamespaceBase, x: OperandLike, /, weights: OperandLike | None = None, minlength: int = 0) -> Any:
    """Returns how often each integer occurs, as ``numpy.bincount``; waits for the largest one.

    Args:
        x: [size] integers, 0 or more.
        weights: [size] what to add for each of them; None for 1.
        minlength: the least number of counts.

    Raises:
        ValueError: for negative integers, and arrays of other shapes.
    """
    minlength = integer("minlength", minlength)
    if minlength < 0:
        raise ValueError(f"minlength={minlength}; give 0 or more")
    length = minlength
    if type_of(x).dtype.kind in "biu" and 0 not in type_of(x).shape:
        min_value, max_value = (int(i) for i in xp.stack([xp.min(x), xp.max(x)]).get())
        if min_value < 0:
            raise ValueError(f"x has the negative integer {min_value}; give integers of 0 or more")
        length = max(minlength, max_value + 1)
    return xp.call("bincount", x, weights, length=length)


def histogram_bin_edges(
    xp: NamespaceBase, a: OperandLike, bins: Any = 10, range: tuple[float, float] | None = None,  # noqa: A002  # NumPy's name
    weights: OperandLike | None = None,
) -> NDArray:  # fmt: skip
    """Returns the edges of a histogram, of this process, as ``numpy.histogram_bin_edges``.

    It waits for the extremes of ``a`` if there is no range, and for ``bins``, a number or the edges, on the mesh.

    Raises:
        TypeError: for the name of an estimator in place of a number of bins.
        ValueError: for weights of another shape.
    """
    if weights is not None and type_of(weights).shape != type_of(a).shape:
        raise ValueError(f"weights is of shape {type_of(weights).shape} and a of {type_of(a).shape}; give one for each")
    if isinstance(bins, str):
        raise TypeError(
            f"bins is {bins!r}; arrays on the mesh take a number of bins, or their edges. For estimators call "
            "numpy.histogram_bin_edges(a.get(), bins)"
        )
    bins = value_of(bins)
    dtype = type_of(a).dtype
    if np.ndim(bins):
        return np.histogram_bin_edges(np.empty(0, dtype), bins)
    ends = _ends(range)
    return np.histogram_bin_edges(_extremes(xp, a, ends), bins, ends)


def _ends(range: Any) -> Any:  # noqa: A002
    """Returns the ends of the bins, as numbers of this process; None without a range.

    Raises:
        ParameterTypeError: for what is no pair of real numbers.
    """
    if range is None:
        return None
    ends = [value_of(end) for end in range] if np.iterable(range) else []
    if len(ends) != 2 or any(np.ndim(end) or np.asarray(end).dtype.kind in "cSUmMV" or end is None for end in ends):
        raise ParameterTypeError(
            f"range is {ends or range!r}; give two real numbers, the first and the last edge", field="range"
        )
    return tuple(ends)


def _extremes(xp: NamespaceBase, a: OperandLike, range: Any) -> NDArray:  # noqa: A002
    """Returns the least and the greatest number of an array, in this process; none with a range, and of no numbers."""
    if range is not None or 0 in type_of(a).shape:
        return np.empty(0, type_of(a).dtype)
    ends: NDArray = xp.stack([xp.min(a), xp.max(a)]).get()
    return ends


def _traced_edges(xp: NamespaceBase, a: OperandLike, bins: int) -> Any:
    """Returns equally wide bins from the least to the greatest number, in a function that is traced.

    Raises:
        ValueError: for less than one bin.
    """
    if bins < 1:
        raise ValueError("`bins` must be positive, when an integer")
    dtype = np.histogram_bin_edges(np.ones(1, type_of(a).dtype), 1).dtype
    first, last = (converted(xp, end, dtype) for end in (xp.min(a), xp.max(a)))
    half = xp.where(xp.equal(first, last), dtype.type(0.5), dtype.type(0))
    first, last = xp.subtract(first, half), xp.add(last, half)
    step, numbers = xp.divide(xp.subtract(last, first), dtype.type(bins)), np.arange(bins + 1, dtype=dtype)
    return xp.where(numbers == bins, last, xp.add(xp.multiply(numbers, step), first))


def _edges_of_axes(xp: NamespaceBase, axes: Sequence[Any], bins: Sequence[Any], ranges: Sequence[Any]) -> list[NDArray]:
    """Returns the edges along each axis, as ``numpy.histogramdd`` computes them from numbers of bins."""
    edges, dtype = [], np.result_type(*(type_of(at).dtype for at in axes)) if axes else None
    for at, number, ends in zip(axes, bins, ranges, strict=True):
        if isinstance(number, float | np.floating) and number < 1:
            raise ValueError(f"bins has {number} for an axis; give an integer of 1 or more, or edges")
        if np.ndim(number) or not isinstance(number, int | np.integer):
            edges.append(histogram_bin_edges(xp, at, number, ends))
        else:
            ends = _ends(ends)  # noqa: PLW2901  # checked where they are used, as in NumPy
            sample = _extremes(xp, at, ends).astype(dtype)
            edges.append(np.histogramdd([sample], [int(number)], None if ends is None else [ends])[1][0])
    return edges


def histogram(
    xp: NamespaceBase, a: OperandLike, bins: Any = 10, range: tuple[float, float] | None = None,  # noqa: A002  # NumPy's name
    density: bool | None = None, weights: OperandLike | None = None,
) -> tuple[Any, NDArray]:  # fmt: skip
    """Returns how many numbers are in each bin, and the edges of the bins, as ``numpy.histogram``.

    Args:
        a: [...] the numbers, real.
        bins: the number of bins, or their edges; those on the mesh are copied, an implicit copy.
        range: the first and the last edge; None for the least and the greatest number, for which it waits.
        density: divide by the width of each bin and by the sum.
        weights: [...] what to add for each number; None for 1.

    Returns:
        The counts, on the mesh, and the edges, of this process; in a traced function, both on the mesh.
    """
    is_open = range is None and isinstance(bins, int | np.integer) and 0 not in type_of(a).shape
    edges: Any
    if is_open and xp.traced(a) is not None:
        edges = _traced_edges(xp, a, integer("bins", bins))
    else:
        edges = histogram_bin_edges(xp, a, bins, range)
    if weights is not None and type_of(weights).shape != type_of(a).shape:
        raise ValueError(f"weights is of shape {type_of(weights).shape}; give one for each of {type_of(a).shape}")
    indices = _bins(xp, xp.reshape(a, -1), edges)
    counts = _sums(
        xp, indices, None if weights is None else namespace_of(xp, weights).reshape(weights, -1), len(edges) - 1
    )
    if not density:
        return counts, edges
    widths = converted(xp, np.diff(edges), np.dtype(np.float64))
    return xp.divide(xp.divide(counts, widths), xp.sum(counts)), edges


def histogram2d(
    xp: NamespaceBase, x: OperandLike, y: OperandLike, bins: Any = 10, range: Any = None,  # noqa: A002  # NumPy's name
    density: bool | None = None, weights: OperandLike | None = None,
) -> tuple[Any, NDArray, NDArray]:  # fmt: skip
    """Returns how many points are in each bin of a plane, and the edges of the bins, as ``numpy.histogram2d``.

    Args:
        x: [points] the first coordinates, real.
        y: [points] the second coordinates.
        bins: the number of bins along both axes, or two numbers, or edges of this process for both or for each.
        range: the first and the last edge along each axis; None for the least and the greatest coordinates, for
            which it waits.
        density: divide by the area of each bin and by the sum.
        weights: [points] what to add for each point; None for 1.

    Returns:
        The counts [bins of x, bins of y] in float64, on the mesh, and the edges, of this process.
    """
    shape = type_of(x).shape
    if len(shape) != 1 or type_of(y).shape != shape:
        raise ValueError(f"x is of shape {shape} and y of {type_of(y).shape}; give as many numbers, of one axis")
    is_for_both = not isinstance(bins, Sequence | np.ndarray) or len(bins) != len((x, y))
    bins_of_axes = [bins, bins] if is_for_both else [*bins]
    ranges = [None, None] if range is None else range
    points, types = (x, y), [type_of(x).dtype, type_of(y).dtype]
    if all(dtype.kind in "biufc" for dtype in types):  # as an array of both, whose edges are of float64 if it is empty
        common = np.result_type(*types) if shape[0] else np.dtype(np.float64)
        points = tuple(converted(xp, item, common) for item in points)
    edges = _edges_of_axes(xp, points, bins_of_axes, ranges)
    first, second = (_bins(xp, at, of_axis) for at, of_axis in zip(points, edges, strict=True))
    sizes = [len(of_axis) - 1 for of_axis in edges]
    is_inside = [
        xp.logical_and(xp.greater_equal(at, 0), xp.less(at, size))
        for at, size in zip((first, second), sizes, strict=True)
    ]
    flat = xp.where(xp.logical_and(*is_inside), xp.add(xp.multiply(first, sizes[1]), second), -1)
    sums = xp.astype(_sums(xp, flat, weights, sizes[0] * sizes[1]), np.float64)
    counts = xp.reshape(sums, sizes)
    if density:
        areas = np.multiply.outer(*map(np.diff, edges))
        counts = xp.divide(xp.divide(counts, areas), xp.sum(counts))
    return counts, *edges


def histogramdd(
    xp: NamespaceBase, sample: Any, bins: Any = 10, range: Any = None,  # noqa: A002  # NumPy's name
    density: bool | None = None, weights: OperandLike | None = None,
) -> tuple[Any, tuple[NDArray, ...]]:  # fmt: skip
    """Returns how many points are in each bin of a space, and the edges of the bins, as ``numpy.histogramdd``.

    Args:
        sample: [points, D] the coordinates, real; or a sequence of D arrays [points].
        bins: the number of bins along all axes, or for each axis a number, or edges of this process.
        range: the first and the last edge along each axis; None for the least and the greatest coordinates, for
            which it waits.
        density: divide by the volume of each bin and by the sum.
        weights: [points] what to add for each point; None for 1.

    Returns:
        The counts, with an axis for each of the D, in float64, on the mesh, and the edges, of this process.

    Raises:
        ValueError: for other numbers of bins and ranges than there are axes.
    """
    is_table = hasattr(sample, "shape") and type_of(sample).ndim == 2
    points = sample.T if is_table else [sample] if hasattr(sample, "shape") else sample
    axes = [points[i] for i in builtins.range(len(points))]
    if axes and not any(type_of(axis).ndim for axis in axes):  # numbers are the points of one axis
        axes = [xp.stack(axes)]
    count = len(axes)
    of_axes = [bins] * count if not hasattr(bins, "__len__") else [*bins]
    ranges = [None] * count if range is None else [*range]
    if len(of_axes) != count or len(ranges) != count:
        raise ValueError(f"{count} axes, {len(of_axes)} of bins and {len(ranges)} ranges; give one for each axis")
    edges = tuple(_edges_of_axes(xp, axes, of_axes, ranges))
    sizes = [len(of_axis) - 1 for of_axis in edges]
    flat: Any = 0
    is_inside: Any = True
    for at, of_axis, size in zip(axes, edges, sizes, strict=True):
        index = _bins(xp, at, of_axis)
        inside = xp.logical_and(xp.greater_equal(index, 0), xp.less(index, size))
        is_inside = xp.logical_and(is_inside, inside)
        flat = xp.add(xp.multiply(flat, size), index)
    sums = _sums(xp, xp.where(is_inside, flat, -1), weights, math.prod(sizes))
    counts = xp.reshape(converted(xp, sums, np.dtype(np.float64)), sizes)
    if density:
        volumes = functools.reduce(np.multiply.outer, map(np.diff, edges))
        counts = xp.divide(xp.divide(counts, volumes), xp.sum(counts))
    return counts, edges


def _bins(xp: NamespaceBase, x: Any, edges: NDArray) -> Any:
    """Returns the bin of each number of one axis; negative or too large ones for those outside and NaN."""
    if type_of(x).dtype == np.bool_:
        x = xp.astype(x, np.uint8)
    positions = xp.subtract(xp.searchsorted(edges, x, "right"), 1)
    bins = xp.where(xp.equal(x, edges[-1]), len(edges) - 2, positions)
    return xp.where(xp.isnan(x), -1, bins) if can_be_nan(x) else bins


def interp(  # with NumPy's last argument
    namespace: NamespaceBase, x: OperandLike, xp: OperandLike, fp: OperandLike, left: OperandLike | None = None,
    right: OperandLike | None = None, period: float | None = None, **options: Any,
) -> Any:  # fmt: skip
    """Returns the values of a function that is linear between points, as ``numpy.interp``.

    Args:
        x: [...] where to evaluate the function.
        xp: [points] the coordinates; ascending, unless there is a period.
        fp: [points] the values.
        left: [] the value left of all points; None for the first one.
        right: [] the value right of all points; None for the last one.
        period: the period of the function; None if it has none.
        options: those of `Client.interp`.

    Raises:
        ValueError: for a period of 0.
    """
    if period is None:
        return namespace.call("interp", x, xp, fp, left, right, **options)
    if not period:
        raise ValueError("period=0; give another one, or None")
    of_points, of_values = type_of(xp).shape, type_of(fp).shape
    if len(of_points) != 1 or of_points != of_values or not of_points[0]:
        raise ValueError(
            f"xp is of shape {of_points} and fp of {of_values}; give a coordinate and a value for each point"
        )
    period = abs(period)
    of_x, of_xp = namespace_of(namespace, x), namespace_of(namespace, xp)
    at = of_x.remainder(of_x.astype(np.asarray(x) if of_x is np else x, np.float64), period)
    folded = of_xp.remainder(of_xp.astype(np.asarray(xp) if of_xp is np else xp, np.float64), period)
    permutation = of_xp.argsort(folded)
    of_fp = namespace if namespace in (of_xp, namespace_of(namespace, fp)) else np
    folded, values = of_xp.take(folded, permutation), of_fp.take(fp, permutation)
    before, after = part_of(folded, slice(-1, None)), part_of(folded, slice(0, 1))
    coordinates = of_xp.concatenate([of_xp.subtract(before, period), folded, of_xp.add(after, period)])
    values = of_fp.concatenate([part_of(values, slice(-1, None)), values, part_of(values, slice(0, 1))])
    return namespace.call("interp", at, coordinates, values, **options)


def _sums(xp: NamespaceBase, indices: Any, weights: Any, length: int) -> Any:
    """Returns the sums of the weights of bins, in the type of ``numpy.histogram``."""
    if weights is None:
        return xp.call("bincount", indices, None, length=length)
    dtype = type_of(weights).dtype
    if dtype.kind == "c":
        of_weights = namespace_of(xp, weights)
        parts = [
            xp.call("bincount", indices, part(weights), length=length) for part in (of_weights.real, of_weights.imag)
        ]
        return converted(xp, xp.call("complex", *parts), dtype)
    sums = xp.call("bincount", indices, weights, length=length)
    # By int64, in which integers wrap around as in NumPy.
    return converted(xp, xp.astype(sums, np.int64) if dtype.kind in "iu" else sums, dtype)

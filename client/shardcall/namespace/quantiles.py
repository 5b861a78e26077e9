"""Medians and quantiles along axes: the elements are sorted, and those at the quantiles are taken."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, type_of
from shardcall.namespace.statistics import can_be_nan, matching_weights, nanmean
from shardcall_core.element_types import DType
from shardcall_core.types.arrays import NDArray


def _rounded(index: Any, is_before: Callable[[Any, Any], Any]) -> Any:
    """Returns indices rounded up, or down where a condition holds; 0 for negative ones."""
    before = np.floor(index)
    chosen = np.where(is_before(index - before, before), before, before + 1)
    return np.clip(chosen, 0, None).astype(np.intp)


def _between(alpha: float, beta: float) -> Callable[[int, NDArray], NDArray]:
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


_INDICES: Mapping[str, Callable[[int, NDArray], NDArray]] = MappingProxyType(
    {
        "inverted_cdf": lambda n, q: _rounded(n * q - 1, lambda share, _: share == 0),
        "averaged_inverted_cdf": lambda n, q: n * q - 1,
        "closest_observation": lambda n, q: _rounded(n * q - 1.5, lambda share, i: (share == 0) & (i % 2 == 1)),
        "linear": lambda n, q: (n - 1) * q,
        "lower": lambda n, q: np.floor((n - 1) * q).astype(np.intp),
        "higher": lambda n, q: np.ceil((n - 1) * q).astype(np.intp),
        "nearest": lambda n, q: np.around((n - 1) * q).astype(np.intp),
        "midpoint": lambda n, q: 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q)),
        "interpolated_inverted_cdf": _between(0, 1),
        "hazen": _between(0.5, 0.5),
        "weibull": _between(0, 0),
        "median_unbiased": _between(1 / 3.0, 1 / 3.0),
        "normal_unbiased": _between(3 / 8.0, 3 / 8.0),
    }
)
"""The index of a quantile among n sorted elements, by method (Hyndman and Fan, Sample Quantiles, 1996)."""

_MIXED_AT_INTEGERS = ("averaged_inverted_cdf", "interpolated_inverted_cdf", "weibull")
"""The methods of which NumPy mixes two elements at integer indices too, which `linear` takes as they are."""


def median(xp: NamespaceBase, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Returns the median over axes, as ``numpy.median``; NaN where there is one."""
    rows, shape = _rows(xp, x, axis, keepdims)
    count = type_of(rows).shape[-1]
    if not count:
        return xp.reshape(xp.mean(rows, -1), shape)
    inner = xp.sort(rows, -1)
    middle = xp.mean(_elements(xp, inner, (count - 1) // 2, count // 2 + 1), -1)
    return xp.reshape(_with_nan(xp, inner, middle), shape)


def nanmedian(xp: NamespaceBase, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Returns the median over axes without NaN, as ``numpy.nanmedian``; NaN where there is nothing else."""
    rows, shape = _rows(xp, x, axis, keepdims)
    if not can_be_nan(x) or not type_of(rows).shape[-1]:
        return median(xp, x, axis, keepdims=keepdims)
    count = xp.sum(xp.logical_not(xp.isnan(rows)), -1, keepdims=True)
    middle = [xp.floor_divide(xp.subtract(count, 1), 2), xp.floor_divide(count, 2)]
    indices = xp.clip(xp.concatenate(middle, -1), 0, max(type_of(rows).shape[-1] - 1, 0))
    return xp.reshape(xp.mean(xp.take_along_axis(xp.sort(rows, -1), indices, -1), -1), shape)


def quantile(
    xp: NamespaceBase, x: OperandLike, q: npt.ArrayLike, axis: Any = None, *, method: str = "linear",
    keepdims: bool = False, weights: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns quantiles over axes, as ``numpy.quantile``; NaN where there is one.

    Args:
        x: [...] the array, of real numbers.
        q: [...] numbers of this process, from 0 to 1, whose axes are the first of the result.
        axis: the axis or axes; None for all.
        method: one of NumPy's methods.
        keepdims: keep the reduced axes, with one element each.
        weights: of the shape of ``x``, or of its axes ``axis``, for the method ``"inverted_cdf"``; None for equal ones.
            Weights on the mesh are not checked; those whose sum is zero give the least element.

    Raises:
        ValueError: for a quantile out of range, another method, an array without elements, and weights of another
            shape.
        TypeError: for quantiles on the mesh, and an array of complex numbers.
    """
    return _quantiles(xp, x, q, _checked(q, 1), axis, method, keepdims, weights)


def percentile(
    xp: NamespaceBase, x: OperandLike, q: npt.ArrayLike, axis: Any = None, *, method: str = "linear",
    keepdims: bool = False, weights: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns percentiles over axes, as ``numpy.percentile``; the arguments of `quantile`, ``q`` from 0 to 100."""
    return _quantiles(xp, x, q, _checked(q, 100), axis, method, keepdims, weights)


def nanquantile(
    xp: NamespaceBase, x: OperandLike, q: npt.ArrayLike, axis: Any = None, *, method: str = "linear",
    keepdims: bool = False, weights: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns quantiles of what is not NaN, as ``numpy.nanquantile``; the arguments are those of `quantile`."""
    return _nanquantiles(xp, x, q, _checked(q, 1), axis, method, keepdims, weights)


def nanpercentile(
    xp: NamespaceBase, x: OperandLike, q: npt.ArrayLike, axis: Any = None, *, method: str = "linear",
    keepdims: bool = False, weights: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns percentiles of what is not NaN, as ``numpy.nanpercentile``; the arguments of `percentile`."""
    return _nanquantiles(xp, x, q, _checked(q, 100), axis, method, keepdims, weights)


def _nanquantiles(
    xp: NamespaceBase,
    x: OperandLike,
    q: Any,
    at: NDArray,
    axis: Any,
    method: str,
    keepdims: bool,
    weights: OperandLike | None = None,
) -> Any:
    _check_real(x)
    if weights is not None:
        return _weighted(xp, x, at, axis, method, keepdims, weights, with_nan=False)
    if 0 in type_of(x).shape:
        return nanmean(xp, x, axis, keepdims=keepdims)
    if not can_be_nan(x):
        return _quantiles(xp, x, q, at, axis, method, keepdims)
    _check_method(x, method)
    rows, shape = _rows(xp, x, axis, keepdims)
    inner = xp.sort(rows, -1)
    count = xp.sum(xp.logical_not(xp.isnan(rows)), -1, np.int64, keepdims=True)
    size = xp.astype(count, at.dtype) if at.dtype.kind == "f" else count  # a number to NumPy, without a type of its own
    indices, dtype = _INDICES[method](size, at.ravel()), type_of(x).dtype
    last_index, below = xp.maximum(xp.subtract(count, 1), 0), xp.floor(indices)
    before = xp.clip(xp.astype(below, np.int64), 0, last_index)
    result = xp.take_along_axis(inner, before, -1)
    if indices.dtype.kind == "f":
        is_inside = xp.logical_and(xp.greater_equal(indices, 0), xp.less(indices, last_index))
        after = xp.take_along_axis(inner, xp.add(before, is_inside), -1)
        share = xp.where(is_inside, _share(xp.subtract(indices, below), method, xp.where), 0)
        result = _mixed(xp, result, after, share, xp.subtract(1, share))
        dtype = dtype if type(q) in (int, float) else np.result_type(dtype, np.asarray(q).dtype)
    elif method in _MIXED_AT_INTEGERS:
        dtype = _type_at_integers(dtype, q)
    last = type_of(result).ndim - 1
    result = xp.reshape(xp.transpose(result, (last, *range(last))), (*at.shape, *shape))
    return result if result.dtype == dtype else xp.astype(result, dtype)


def _quantiles(
    xp: NamespaceBase,
    x: OperandLike,
    q: Any,
    at: NDArray,
    axis: Any,
    method: str,
    keepdims: bool,
    weights: OperandLike | None = None,
) -> Any:
    if weights is not None:
        return _weighted(xp, x, at, axis, method, keepdims, weights)
    _check_method(x, method)
    rows, shape = _rows(xp, x, axis, keepdims)
    count = type_of(rows).shape[-1]
    if not count:
        raise ValueError("x has no elements along the axes; it has no quantiles")
    weak = type(q) in (int, float)
    if at.dtype.kind == "f" and not weak and type_of(x).dtype.kind == "f":
        at = at.astype(np.result_type(at.dtype, np.asarray(q).dtype))
    indices = np.asarray(_INDICES[method](count, at))
    inner = xp.sort(rows, -1)
    flat = xp.take(inner, np.clip(np.floor(indices), 0, count - 1).astype(np.int64).ravel(), -1)
    if indices.dtype.kind == "f":
        flat = _interpolated(xp, inner, flat, indices, method, weak)
    elif method in _MIXED_AT_INTEGERS:
        flat = xp.astype(flat, _type_at_integers(type_of(x).dtype, q))
    result = xp.transpose(_with_nan(xp, inner, flat), (type_of(flat).ndim - 1, *range(type_of(flat).ndim - 1)))
    return xp.reshape(result, (*indices.shape, *shape))


def _type_at_integers(dtype: DType, q: Any) -> DType:
    """Returns the type of elements that are mixed with integer shares."""
    return np.result_type(dtype, 1.0 if type(q) is int else np.dtype(np.int64))


def _weighted(
    xp: NamespaceBase, x: OperandLike, at: NDArray, axis: Any, method: str, keepdims: bool, weights: OperandLike, *,
    with_nan: bool = True,
) -> Any:  # fmt: skip
    """Returns quantiles of weighted elements: the first whose share of the sum of the weights, with those before."""
    _check_method(x, method)
    if method != "inverted_cdf":
        raise ValueError(f"method={method!r} takes no weights; 'inverted_cdf' does")
    factors = _weights_like(xp, x, axis, weights)
    rows, shape = _rows(xp, x, axis, keepdims)
    factors, count = _rows(xp, factors, axis, keepdims)[0], type_of(rows).shape[-1]
    if not count:
        raise ValueError("x has no elements along the axes; it has no quantiles")
    if not with_nan and can_be_nan(x):
        factors = xp.where(xp.isnan(rows), 0, factors)
    permutation = xp.argsort(rows, -1)
    inner, factors = (xp.take_along_axis(values, permutation, -1) for values in (rows, factors))
    sums = xp.cumsum(factors, -1, np.float64)
    shares = xp.divide(sums, xp.take(sums, np.array([-1]), -1))
    shares = shares if at.dtype.kind != "f" else xp.astype(shares, at.dtype)
    shares = xp.where(xp.equal(shares, 0), -1, shares)  # so that 0 is the share of the first with a weight
    below = xp.less(xp.expand_dims(shares, -2), at.reshape(-1, 1).astype(type_of(shares).dtype))
    indices = xp.minimum(xp.sum(below, -1), count - 1)
    flat = xp.take_along_axis(inner, indices, -1)
    values = _with_nan(xp, inner, flat) if with_nan else flat
    last = type_of(flat).ndim - 1
    return xp.reshape(xp.transpose(values, (last, *range(last))), (*at.shape, *shape))


def _weights_like(xp: NamespaceBase, x: OperandLike, axis: Any, weights: OperandLike) -> Any:
    """Returns weights of the shape of an array, those of this process checked."""
    shape = type_of(x).shape
    factors = matching_weights(xp, x, None if axis is None else normalize_axis_tuple(axis, len(shape)), weights)
    if isinstance(factors, ArrayProperties):
        return xp.broadcast_to(factors, shape)
    if np.any(factors < 0):
        raise ValueError("weights has negative numbers; give numbers of 0 or more")
    factors = np.broadcast_to(factors, shape)
    sums = np.sum(factors, axis if axis is None else normalize_axis_tuple(axis, len(shape)), np.float64)
    if not np.all(np.isfinite(sums)) or not np.all(sums):
        raise ValueError("weights has NaN or infinity, or all are zero; give others")
    return factors


def _interpolated(xp: NamespaceBase, inner: Any, before: Any, indices: NDArray, method: str, weak: bool) -> Any:
    """Returns values between the sorted elements before and behind indices, as ``numpy.quantile`` does."""
    count = type_of(inner).shape[-1]
    behind = np.clip(np.floor(indices) + 1, 0, count - 1)
    after = xp.take(inner, np.where(indices < 0, 0, behind).astype(np.int64).ravel(), -1)
    share = np.where((indices < 0) | (indices >= count - 1), 0, indices - np.floor(indices)).ravel()
    share = _share(share, method, np.where).astype(indices.dtype)
    weight: Any = share[0].item() if weak else share
    return _mixed(xp, before, after, weight, 1 - weight)


def _rows(xp: NamespaceBase, x: OperandLike, axis: Any, keepdims: bool) -> tuple[Any, tuple[int, ...]]:
    """Returns an array with the reduced axes as its last one, and the shape of what is reduced."""
    shape = type_of(x).shape
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    requested_axes = [*range(len(shape))] if axis is None else [*map(operator.index, axes)]
    if any(not -len(shape) <= i < len(shape) for i in requested_axes) or len(
        {i % max(len(shape), 1) for i in requested_axes}
    ) < len(requested_axes):
        raise np.exceptions.AxisError(f"axis={axis} and x has {len(shape)} axes; name axes of x, each once")
    reduced = [i % len(shape) for i in requested_axes]
    kept = [i for i in range(len(shape)) if i not in reduced]
    left = tuple(1 if i in reduced else size for i, size in enumerate(shape) if keepdims or i not in reduced)
    if len(reduced) == 1:
        return (x if reduced == [len(shape) - 1] else xp.transpose(x, (*kept, *reduced))), left
    moved = xp.transpose(x, (*kept, *reduced)) if kept else x
    return xp.reshape(moved, (*(shape[i] for i in kept), int(np.prod([shape[i] for i in reduced])))), left


def _elements(xp: NamespaceBase, rows: Any, first: int, end: int) -> Any:
    """Returns the elements from an index to another along the last axis."""
    return xp.take(rows, np.arange(first, end), -1)


def _with_nan(xp: NamespaceBase, inner: Any, values: Any) -> Any:
    """Returns values of sorted rows, NaN where a row has one: it is the last."""
    if not can_be_nan(inner):
        return values
    last = xp.take(inner, np.array([-1]), -1)
    last = last if type_of(values).ndim == type_of(inner).ndim else xp.squeeze(last, -1)
    return xp.where(xp.isnan(last), xp.astype(last, type_of(values).dtype), values)


def _share(share: Any, method: str, where: Callable[..., Any]) -> Any:
    """Returns the share of the element behind an index, for the fractional part of the index."""
    if method == "midpoint":
        return where(share == 0, 0.0, 0.5)
    return where(share == 0, 0.5, 1.0) if method == "averaged_inverted_cdf" else share


def _mixed(functions: Any, before: Any, after: Any, share: Any, rest: Any) -> Any:
    """Returns values between two elements, from the nearer one, as ``numpy.quantile`` does."""
    step = functions.subtract(after, before)
    low = functions.add(before, functions.multiply(step, share))
    high = functions.subtract(after, functions.multiply(step, rest))
    return functions.where(share >= 0.5, high, low)


def _check_real(x: OperandLike) -> None:
    if type_of(x).dtype.kind == "c":
        raise TypeError("x is of complex numbers, which have no quantiles; give real numbers")


def _check_method(x: OperandLike, method: str) -> None:
    _check_real(x)
    if method not in _INDICES:
        raise ValueError(f"method={method!r} is not one of: {', '.join(_INDICES)}")


def _checked(q: Any, max_value: int) -> NDArray:
    if isinstance(q, ArrayProperties):
        raise TypeError("q is on the mesh, and it decides which elements are taken; pass q.get()")
    at = np.asarray(q)
    if at.dtype.kind not in "biuf":
        raise TypeError(f"q is of {at.dtype.name}; give real numbers")
    if max_value != 1:
        at = np.true_divide(at, max_value)
    if at.ndim > 2:
        raise ValueError(f"q is of shape {at.shape}; give two axes or fewer")
    if not np.all((at >= 0) & (at <= 1)):
        raise ValueError(f"q must be from 0 to {max_value}")
    return at if at.dtype.kind == "f" else at.astype(np.int64)  # of integers "linear" takes elements as they are

"""Statistics: reductions that leave out NaN, weighted averages, covariances, and sums of exponentials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, converted, copied, namespace_of, type_of, weak_type
from shardcall.namespace.standard import degrees_taken
from shardcall_core.element_types import is_float, is_inexact
from shardcall_core.functions.type_rules import loop
from shardcall_core.types.element_types import parse_dtype


def can_be_nan(x: OperandLike) -> bool:
    """Returns whether an array can hold NaN."""
    dtype = type_of(x).dtype
    return dtype.kind == "c" or is_float(dtype)


def nansum(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, dtype: npt.DTypeLike | None = None, *, keepdims: bool = False,
    initial: OperandLike | None = None, where: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns the sum over axes with NaN as 0, as ``numpy.nansum``."""
    how: dict[str, Any] = {"keepdims": keepdims, "initial": initial, "where": where}
    return xp.sum(_filled(xp, x, 0), axis, dtype, **how)


def nanprod(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, dtype: npt.DTypeLike | None = None, *, keepdims: bool = False,
    initial: OperandLike | None = None, where: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns the product over axes with NaN as 1, as ``numpy.nanprod``."""
    how: dict[str, Any] = {"keepdims": keepdims, "initial": initial, "where": where}
    return xp.prod(_filled(xp, x, 1), axis, dtype, **how)


def nanmax(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, *, keepdims: bool = False,
    initial: OperandLike | None = None, where: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns the maximum over axes without NaN, as ``numpy.nanmax``; NaN where there is nothing else."""
    return _extreme(xp, xp.max, -math.inf, x, axis, keepdims=keepdims, initial=initial, where=where)


def nanmin(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, *, keepdims: bool = False,
    initial: OperandLike | None = None, where: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns the minimum over axes without NaN, as ``numpy.nanmin``; NaN where there is nothing else."""
    return _extreme(xp, xp.min, math.inf, x, axis, keepdims=keepdims, initial=initial, where=where)


def nanargmax(xp: NamespaceBase, x: OperandLike, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Returns the index of the maximum without NaN, as ``numpy.nanargmax``; waits to see that there is one.

    Raises:
        ValueError: for a slice of NaN alone.
    """
    return xp.argmax(_comparable(xp, x, axis, -math.inf), axis, keepdims=keepdims)


def nanargmin(xp: NamespaceBase, x: OperandLike, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Returns the index of the minimum without NaN, as ``numpy.nanargmin``; waits to see that there is one.

    Raises:
        ValueError: for a slice of NaN alone.
    """
    return xp.argmin(_comparable(xp, x, axis, math.inf), axis, keepdims=keepdims)


def nanmean(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, dtype: npt.DTypeLike | None = None, *, keepdims: bool = False,
    where: OperandLike | None = None,
) -> Any:  # fmt: skip
    """Returns the mean over axes without NaN, as ``numpy.nanmean``; NaN where there is nothing else.

    Raises:
        TypeError: for integers or bool as the type of a mean of floating-point numbers.
    """
    if not can_be_nan(x):
        return xp.mean(x, axis, dtype, keepdims=keepdims, where=where)
    if dtype is not None and not is_inexact(requested := parse_dtype(dtype)):
        raise TypeError(
            f"dtype={requested.name} does not hold a mean of {type_of(x).dtype.name}; give a floating-point type"
        )
    total = xp.sum(_filled(xp, x, 0), axis, dtype, keepdims=keepdims, where=where)
    return _divided_by_count(xp, total, _count(xp, x, axis, keepdims, where))


def nanvar(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, dtype: npt.DTypeLike | None = None, ddof: float = 0, *,
    keepdims: bool = False, where: OperandLike | None = None, mean: OperandLike | None = None,
    correction: float | None = None,
) -> Any:  # fmt: skip
    """Returns the variance over axes without NaN, as ``numpy.nanvar``; NaN for no more elements than ``ddof``."""
    ddof = degrees_taken(ddof, correction)
    requested = None if dtype is None else parse_dtype(dtype)
    if requested is not None:
        x_dtype = type_of(x).dtype
        if not is_inexact(requested) or (x_dtype.kind == "c" and requested.kind != "c"):
            raise TypeError(
                f"dtype={requested.name} does not hold a variance of {x_dtype.name}; give a floating-point type"
            )
        x = xp.astype(x, requested)
    if not can_be_nan(x):
        return xp.var(x, axis, ddof=ddof, keepdims=keepdims, where=where, mean=mean)
    mean = nanmean(xp, x, axis, keepdims=True, where=where) if mean is None else mean
    apart = xp.where(xp.isnan(x), 0, xp.subtract(x, mean))
    squares = xp.square(apart)
    if type_of(x).dtype.kind == "c":
        squares = xp.add(xp.square(xp.real(apart)), xp.square(xp.imag(apart)))
    total = xp.sum(squares, axis, keepdims=keepdims, where=where)
    freedom = xp.subtract(_count(xp, x, axis, keepdims, where), ddof)
    variance = xp.where(xp.less_equal(freedom, 0), math.nan, _divided_by_count(xp, total, freedom))
    return xp.astype(variance, requested) if requested is not None and requested.kind == "c" else variance


def nanstd(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, dtype: npt.DTypeLike | None = None, ddof: float = 0, *,
    keepdims: bool = False, where: OperandLike | None = None, mean: OperandLike | None = None,
    correction: float | None = None,
) -> Any:  # fmt: skip
    """Returns the standard deviation over axes without NaN, as ``numpy.nanstd``."""
    how: dict[str, Any] = {"mean": mean, "correction": correction}
    return xp.sqrt(nanvar(xp, x, axis, dtype, ddof, keepdims=keepdims, where=where, **how))


def nancumsum(xp: NamespaceBase, x: OperandLike, axis: int | None = None, dtype: npt.DTypeLike | None = None) -> Any:
    """Returns the running sum along an axis with NaN as 0, as ``numpy.nancumsum``."""
    return xp.cumsum(_filled(xp, x, 0), axis, dtype)


def nancumprod(xp: NamespaceBase, x: OperandLike, axis: int | None = None, dtype: npt.DTypeLike | None = None) -> Any:
    """Returns the running product along an axis with NaN as 1, as ``numpy.nancumprod``."""
    return xp.cumprod(_filled(xp, x, 1), axis, dtype)


def average(
    xp: NamespaceBase, a: OperandLike, axis: Any = None, weights: OperandLike | None = None, returned: bool = False, *,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """Returns the weighted mean over axes, as ``numpy.average``.

    Args:
        a: [...] the array.
        axis: the axis or axes; None for all.
        weights: of the shape of ``a``, or of its axes ``axis``; None for equal weights. Weights on the mesh whose
            sum is zero give NaN or infinity.
        returned: return the sum of the weights as well.
        keepdims: keep the reduced axes, with one element each.

    Raises:
        ValueError: for weights of another shape.
        ZeroDivisionError: for weights of this process whose sum is zero.
    """
    if axis is not None:
        axis = normalize_axis_tuple(axis, type_of(a).ndim, "axis")
    if weights is None:
        mean = xp.mean(a, axis, keepdims=keepdims)
        if not (results := math.prod(type_of(mean).shape)):
            raise ZeroDivisionError(f"a is of shape {type_of(a).shape}, which has no mean along {axis}; give elements")
        count = math.prod(type_of(a).shape) // results
        return (mean, _constant(xp, mean, count)) if returned else mean
    factors = matching_weights(xp, a, axis, weights)
    types = type_of(a).dtype, type_of(factors).dtype
    dtype = np.result_type(*types, np.float64) if types[0].kind in "biu" else loop("multiply", *types).result
    scale = namespace_of(xp, factors).sum(factors, axis, dtype, keepdims=keepdims)
    if not isinstance(scale, ArrayProperties) and np.any(scale == 0):
        raise ZeroDivisionError("the weights have a sum of zero; average divides by it")
    product = xp.multiply(converted(xp, a, dtype), converted(xp, factors, dtype))
    mean = xp.divide(xp.sum(product, axis, keepdims=keepdims), scale)
    return (mean, copied(xp.broadcast_to(scale, type_of(mean).shape))) if returned else mean


def cov(
    xp: NamespaceBase, m: OperandLike, y: OperandLike | None = None, rowvar: bool = True, bias: bool = False,
    ddof: int | None = None, fweights: npt.ArrayLike | None = None, aweights: npt.ArrayLike | None = None,
    *, dtype: npt.DTypeLike | None = None,
) -> Any:  # fmt: skip
    """Returns the covariances of variables, as ``numpy.cov``; the weights are arrays of this process.

    Raises:
        ValueError: for arrays of more than two axes, and for negative weights.
        RuntimeError: for weights of another shape than the observations.
    """
    x = _variables(xp, m, rowvar)
    if not type_of(x).shape[0]:
        return xp.copy(np.zeros((0, 0)))
    common = np.result_type(type_of(m).dtype, *([] if y is None else [type_of(y).dtype]), np.float64)
    if y is not None:
        x = xp.concatenate([x, _variables(xp, y, rowvar)], 0)
    if dtype is not None and not is_inexact(parse_dtype(dtype)):
        raise TypeError(f"dtype={parse_dtype(dtype).name} does not hold a covariance; give a floating-point type")
    x = xp.astype(x, common if dtype is None else dtype)
    weights, factor = _weighing(type_of(x).shape[1], bias, ddof, fweights, aweights)
    if weights is None:
        x = weighted = xp.subtract(x, xp.mean(x, 1, keepdims=True))
    else:
        row = weights.astype(type_of(x).dtype)
        mean = xp.divide(xp.sum(xp.multiply(x, row), 1, keepdims=True), row.sum())
        x = xp.subtract(x, mean)
        weighted = xp.multiply(x, row)
    product = xp.matmul(x, xp.conjugate(xp.transpose(weighted)))
    return xp.squeeze(xp.multiply(product, 1 / factor if factor else math.inf))


def corrcoef(
    xp: NamespaceBase,
    x: OperandLike,
    y: OperandLike | None = None,
    rowvar: bool = True,
    *,
    dtype: npt.DTypeLike | None = None,
) -> Any:
    """Returns the correlations of variables, as ``numpy.corrcoef``."""
    covariance = cov(xp, x, y, rowvar, dtype=dtype)
    if not type_of(covariance).ndim:
        return xp.divide(covariance, covariance)
    deviation = xp.sqrt(xp.real(xp.diagonal(covariance)))
    scaled = xp.divide(xp.divide(covariance, xp.expand_dims(deviation, 1)), deviation)
    if type_of(scaled).dtype.kind != "c":
        return xp.clip(scaled, -1, 1)
    parts = [xp.clip(part, -1, 1) for part in (xp.real(scaled), xp.imag(scaled))]
    return xp.call("complex", *parts)


def logsumexp(
    xp: NamespaceBase, x: OperandLike, axis: Any = None, b: OperandLike | None = None, keepdims: bool = False
) -> Any:
    """Returns the logarithm of the sum of exponentials over axes, as ``scipy.special.logsumexp``.

    Args:
        x: [...] the exponents, real.
        axis: the axis or axes; None for all.
        b: the factors of the exponentials; None for 1.
        keepdims: keep the reduced axes, with one element each.
    """
    x = _inexact(xp, x)
    if b is not None:
        x = converted(xp, x, np.result_type(type_of(x).dtype, weak_type(b)))
        x = xp.where(namespace_of(xp, b).equal(b, 0), -math.inf, x)
    highest = xp.max(x, axis, keepdims=True, initial=-math.inf)
    highest = xp.where(xp.isfinite(highest), highest, 0)
    terms = xp.exp(xp.subtract(x, highest))
    total = xp.log(xp.sum(terms if b is None else xp.multiply(terms, b), axis, keepdims=keepdims))
    if not keepdims:
        highest = xp.squeeze(highest, _axes(axis, type_of(x).ndim))
    return xp.add(total, highest)


def softmax(xp: NamespaceBase, x: OperandLike, axis: Any = None) -> Any:
    """Returns exponentials divided by their sum over axes, as ``scipy.special.softmax``."""
    x = _inexact(xp, x)
    terms = xp.exp(xp.subtract(x, xp.max(x, axis, keepdims=True)))
    return xp.divide(terms, xp.sum(terms, axis, keepdims=True))


def log_softmax(xp: NamespaceBase, x: OperandLike, axis: Any = None) -> Any:
    """Returns the logarithm of `softmax`, as ``scipy.special.log_softmax``."""
    x = _inexact(xp, x)
    highest = xp.max(x, axis, keepdims=True)
    apart = xp.subtract(x, xp.where(xp.isfinite(highest), highest, 0))
    return xp.subtract(apart, xp.log(xp.sum(xp.exp(apart), axis, keepdims=True)))


def _filled(xp: NamespaceBase, x: OperandLike, value: float) -> Any:
    return xp.where(xp.isnan(x), value, x) if can_be_nan(x) else x


def _inexact(xp: NamespaceBase, x: OperandLike) -> Any:
    return x if can_be_nan(x) else xp.astype(x, np.float64)


def _constant(xp: NamespaceBase, like: OperandLike, value: float) -> Any:
    return xp.where(xp.logical_or(like, True), value, like)


def _count(xp: NamespaceBase, x: OperandLike, axis: Any, keepdims: bool, where: OperandLike | None) -> Any:
    return xp.sum(xp.logical_not(xp.isnan(x)), axis, np.int64, keepdims=keepdims, where=where)


def _divided_by_count(xp: NamespaceBase, total: Any, count: Any) -> Any:
    """Returns a quotient in the type of its dividend, divided in float64 as NumPy divides by integers."""
    return xp.astype(xp.divide(total, count), type_of(total).dtype)


def _extreme(
    xp: NamespaceBase, function: Any, lowest: float, x: OperandLike, axis: Any, *, initial: Any, **how: Any
) -> Any:
    if not can_be_nan(x):
        return function(x, axis, initial=initial, **how)
    result = function(_filled(xp, x, lowest), axis, initial=initial, **how)
    if initial is not None:
        return result
    return xp.where(xp.all(xp.isnan(x), axis, keepdims=how["keepdims"]), math.nan, result)


def _comparable(xp: NamespaceBase, x: OperandLike, axis: int | None, lowest: float) -> Any:
    if not can_be_nan(x):
        return x
    if bool(xp.any(xp.all(xp.isnan(x), axis))):
        raise ValueError("x has a slice of NaN alone, which has no index of an extreme element")
    return _filled(xp, x, lowest)


def matching_weights(xp: NamespaceBase, a: OperandLike, axis: Any, weights: OperandLike) -> Any:
    """Returns weights that broadcast with the array."""
    shape, weights_shape = type_of(a).shape, type_of(weights).shape
    if weights_shape == shape:
        return weights if isinstance(weights, ArrayProperties) else np.asarray(weights)
    if axis is None:
        raise TypeError(
            f"weights is of shape {weights_shape} and a of {shape}; name their axis, or give one for each element"
        )
    axes = _axes(axis, len(shape))
    if weights_shape != tuple(shape[i] for i in axes):
        raise ValueError(
            f"weights is of shape {weights_shape} and a of {shape}; give one for each element along axis={axis}"
        )
    by_axis = [axes.index(i) for i in sorted(axes)]
    sizes = [size if i in axes else 1 for i, size in enumerate(shape)]
    of_weights = namespace_of(xp, weights)
    return of_weights.reshape(of_weights.transpose(weights, by_axis), sizes)


def _variables(xp: NamespaceBase, x: OperandLike, rowvar: bool) -> Any:
    """Returns variables as the rows of a matrix."""
    ndim = type_of(x).ndim
    if ndim > 2:
        raise ValueError(f"an array of variables has {ndim} axes; give two at most")
    if ndim < 2:
        return xp.reshape(x, (1, -1))
    return x if rowvar else xp.transpose(x)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return tuple(i % max(ndim, 1) for i in (axis if isinstance(axis, tuple) else (axis,)))


def _weighing(
    count: int, bias: bool, ddof: int | None, fweights: npt.ArrayLike | None, aweights: npt.ArrayLike | None
) -> tuple[np.ndarray[Any, Any] | None, float]:
    """Returns the weights of the observations, None for equal ones, and the divisor of their products."""
    freedom = (0 if bias else 1) if ddof is None else ddof
    if freedom != int(freedom):
        raise ValueError(f"ddof={ddof} is not an integer")
    if fweights is None and aweights is None:
        return None, max(count - freedom, 0)
    parts = [None if weights is None else np.asarray(weights, float) for weights in (fweights, aweights)]
    if parts[0] is not None and (parts[0] != np.around(parts[0])).any():
        raise TypeError("fweights counts observations; give integers")
    for name, part in zip(("fweights", "aweights"), parts, strict=True):
        if part is not None and part.shape != (count,):
            raise RuntimeError(f"{name} is of shape {part.shape}; give {count} numbers")  # NumPy's class
        if part is not None and (part < 0).any():
            raise ValueError(f"{name} has negative numbers; give numbers of 0 or more")
    frequencies, importance = (np.ones(count) if part is None else part for part in parts)
    weights = frequencies * importance
    total = weights.sum()
    if not freedom or parts[1] is None:
        return weights, max(total - freedom, 0)
    return weights, max(total - freedom * (weights * importance).sum() / total, 0)

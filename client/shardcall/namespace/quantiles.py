"""Medians and quantiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.types.arrays import NDArray
from shardcall.namespace.base import NamespaceBase, type_of
from shardcall.namespace.statistics import can_be_nan


def _between(alpha: float, beta: float) -> Callable[[int, NDArray], NDArray]:
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


_INDICES: Mapping[str, Callable[[int, NDArray], NDArray]] = MappingProxyType(
    {
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


class QuantilesNamespace(NamespaceBase):
    """Medians and quantiles along axes: the elements are sorted, and those at the quantiles are taken."""

    def median(self, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Returns the median over axes, as ``numpy.median``; NaN where there is one."""
        rows, shape = self._rows(x, axis, keepdims)
        count = type_of(rows).shape[-1]
        if not count:
            return self.reshape(self.mean(rows, -1), shape)
        inner = self.sort(rows, -1)
        middle = self.mean(self._between(inner, (count - 1) // 2, count // 2 + 1), -1)
        return self.reshape(self._with_nan(inner, middle), shape)

    def nanmedian(self, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Returns the median over axes without NaN, as ``numpy.nanmedian``; NaN where there is nothing else."""
        rows, shape = self._rows(x, axis, keepdims)
        if not can_be_nan(x) or not type_of(rows).shape[-1]:
            return self.median(x, axis, keepdims=keepdims)
        count = self.sum(self.logical_not(self.isnan(rows)), -1, keepdims=True)
        middle = [self.floor_divide(self.subtract(count, 1), 2), self.floor_divide(count, 2)]
        indices = self.clip(self.concatenate(middle, -1), 0, max(type_of(rows).shape[-1] - 1, 0))
        return self.reshape(self.mean(self.take_along_axis(self.sort(rows, -1), indices, -1), -1), shape)

    def quantile(
        self, x: OperandLike, q: npt.ArrayLike, axis: Any = None, method: str = "linear", *, keepdims: bool = False
    ) -> Any:
        """Returns quantiles over axes, as ``numpy.quantile``; NaN where there is one.

        Args:
            x: [...] the array, of real numbers.
            q: [] or [quantiles] numbers of this process, from 0 to 1.
            axis: the axis or axes; None for all.
            method: one of NumPy's methods but inverted_cdf, averaged_inverted_cdf and closest_observation.
            keepdims: keep the reduced axes, with one element each.

        Raises:
            ValueError: for a quantile out of range, another method, and an array without elements.
            TypeError: for quantiles on the mesh, and an array of complex numbers.
        """
        return self._quantiles(x, q, _checked(q, 1), axis, method, keepdims)

    def percentile(
        self, x: OperandLike, q: npt.ArrayLike, axis: Any = None, method: str = "linear", *, keepdims: bool = False
    ) -> Any:
        """Returns percentiles over axes, as ``numpy.percentile``; the arguments of `quantile`, ``q`` from 0 to 100."""
        return self._quantiles(x, q, _checked(q, 100), axis, method, keepdims)

    def _quantiles(self, x: OperandLike, q: Any, at: NDArray, axis: Any, method: str, keepdims: bool) -> Any:
        if type_of(x).dtype.kind == "c":
            raise TypeError("x is of complex numbers, which have no quantiles; give real numbers")
        if method not in _INDICES:
            raise ValueError(f"method={method!r} is not one of: {', '.join(_INDICES)}")
        rows, shape = self._rows(x, axis, keepdims)
        count = type_of(rows).shape[-1]
        if not count:
            raise ValueError("x has no elements along the axes; it has no quantiles")
        weak = type(q) in (int, float)
        if not weak and type_of(x).dtype.kind == "f":
            at = at.astype(np.result_type(at.dtype, np.asarray(q).dtype))
        indices = np.asarray(_INDICES[method](count, at))
        inner = self.sort(rows, -1)
        flat = self.take(inner, np.clip(np.floor(indices), 0, count - 1).astype(np.int64).ravel(), -1)
        if indices.dtype.kind == "f":
            flat = self._interpolated(inner, flat, indices, method, weak)
        made = self.transpose(self._with_nan(inner, flat), (type_of(flat).ndim - 1, *range(type_of(flat).ndim - 1)))
        return self.reshape(made, (*indices.shape, *shape))

    def _interpolated(self, inner: Any, before: Any, indices: NDArray, method: str, weak: bool) -> Any:
        """Returns values between the sorted elements before and behind indices, as ``numpy.quantile`` does."""
        count = type_of(inner).shape[-1]
        behind = np.clip(np.floor(indices) + 1, 0, count - 1)
        after = self.take(inner, np.where(indices < 0, 0, behind).astype(np.int64).ravel(), -1)
        share = np.where((indices < 0) | (indices >= count - 1), 0, indices - np.floor(indices)).ravel()
        if method == "midpoint":
            share = np.where(indices.ravel() % 1 == 0, 0.0, 0.5)
        share = share.astype(indices.dtype)
        weight: Any = share[0].item() if weak else share
        step = self.subtract(after, before)
        low = self.add(before, self.multiply(step, weight))
        high = self.subtract(after, self.multiply(step, 1 - weight))
        return self.where(share >= 0.5, high, low)

    def _rows(self, x: OperandLike, axis: Any, keepdims: bool) -> tuple[Any, tuple[int, ...]]:
        """Returns an array with the reduced axes as its last one, and the shape of what is reduced."""
        shape = type_of(x).shape
        over = [*range(len(shape))] if axis is None else [axis] if not isinstance(axis, tuple | list) else [*axis]
        if any(not -len(shape) <= i < len(shape) for i in over) or len({i % max(len(shape), 1) for i in over}) < len(
            over
        ):
            raise np.exceptions.AxisError(f"axis={axis} and x has {len(shape)} axes; name axes of x, each once")
        reduced = [i % len(shape) for i in over]
        kept = [i for i in range(len(shape)) if i not in reduced]
        left = tuple(1 if i in reduced else size for i, size in enumerate(shape) if keepdims or i not in reduced)
        if len(reduced) == 1:
            return (x if reduced == [len(shape) - 1] else self.transpose(x, (*kept, *reduced))), left
        moved = self.transpose(x, (*kept, *reduced)) if kept else x
        return self.reshape(moved, (*(shape[i] for i in kept), int(np.prod([shape[i] for i in reduced])))), left

    def _between(self, rows: Any, first: int, end: int) -> Any:
        """Returns the elements from an index to another along the last axis."""
        return self.take(rows, np.arange(first, end), -1)

    def _with_nan(self, inner: Any, values: Any) -> Any:
        """Returns values of sorted rows, NaN where a row has one: it is the last."""
        if not can_be_nan(inner):
            return values
        last = self.take(inner, np.array([-1]), -1)
        last = last if type_of(values).ndim == type_of(inner).ndim else self.squeeze(last, -1)
        return self.where(self.isnan(last), self.astype(last, type_of(values).dtype), values)


def _checked(q: Any, most: int) -> NDArray:
    if isinstance(q, RemoteArray):
        raise TypeError("q is on the mesh, and it decides which elements are taken; pass q.get()")
    at = np.true_divide(q, most) if most != 1 else np.asarray(q)
    if at.ndim > 1:
        raise ValueError(f"q has {at.ndim} axes; give a number or one axis of them")
    if at.dtype.kind not in "biuf" or not np.all((at >= 0) & (at <= 1)):
        raise ValueError(f"q must be from 0 to {most}")
    return at if at.dtype.kind == "f" else at.astype(np.float64)

"""Filters of images, `client.xp.ndimage`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import array_of, converted, namespace_of, part_of, type_of
from shardcall.namespace.integers import integer
from shardcall_core.element_types import DType
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.element_types import parse_dtype
from shardcall_core.types.tracebacks import shortened

Axes = int | Sequence[int] | None

_MODES: Mapping[str, str] = {
    **dict.fromkeys(("reflect", "grid-mirror"), "symmetric"),
    "mirror": "reflect",
    "nearest": "edge",
    **dict.fromkeys(("wrap", "grid-wrap"), "wrap"),
    **dict.fromkeys(("constant", "grid-constant"), "constant"),
}
"""NumPy's names of the extensions of an array beyond its edges, by SciPy's."""


@shortened
class NdimageNamespace:
    """Filters with the names and arguments of ``scipy.ndimage``.

    The array is extended beyond its edges, so that neighbours along a sharded axis exchange the rows next to their
    blocks. Sums are computed in float64 or complex128 and converted to the element type of the array, for integers
    without their fractions. ``output`` takes an element type, and no array: results are new ones.

    Args:
        xp: the namespace that this is part of.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def correlate(
        self, input: OperandLike, weights: OperandLike, output: npt.DTypeLike | None = None, mode: str = "reflect",  # noqa: A002  # SciPy's name
        cval: complex = 0.0, origin: int | Sequence[int] = 0, *, axes: Axes = None,
    ) -> Any:  # fmt: skip
        """Returns the sums of the neighbours of elements times weights, as ``scipy.ndimage.correlate``.

        Args:
            input: [...] the array.
            weights: the weights, of an axis for each of ``axes``. Those of this process that are 0, or at most 2.2e-16,
                are left out, so that infinities below them do not count.
            output: the element type of the result; None for that of the array, complex if anything is.
            mode: the extension beyond the edges: ``"reflect"``, ``"mirror"``, ``"nearest"``, ``"wrap"`` or
                ``"constant"``.
            cval: the elements beyond the edges for ``"constant"``.
            origin: the distance of the weights from the middle, one for all axes or one for each.
            axes: the axes of the array; None for all.

        Raises:
            RuntimeError: for weights of another number of axes, and another mode, as SciPy.
            ValueError: for an origin outside of the weights.
        """
        return self._summed(input, weights, output, mode, cval, origin, axes, is_convolution=False)

    def convolve(
        self, input: OperandLike, weights: OperandLike, output: npt.DTypeLike | None = None, mode: str = "reflect",  # noqa: A002  # SciPy's name
        cval: complex = 0.0, origin: int | Sequence[int] = 0, *, axes: Axes = None,
    ) -> Any:  # fmt: skip
        """Returns the convolution with weights, as ``scipy.ndimage.convolve``; arguments are those of `correlate`."""
        return self._summed(input, weights, output, mode, cval, origin, axes, is_convolution=True)

    def uniform_filter(
        self, input: OperandLike, size: int | Sequence[int] = 3, output: npt.DTypeLike | None = None,  # noqa: A002  # SciPy's name
        mode: str | Sequence[str] = "reflect", cval: complex = 0.0, origin: int | Sequence[int] = 0, *,
        axes: Axes = None,
    ) -> Any:  # fmt: skip
        """Returns the means of the neighbours of elements, as ``scipy.ndimage.uniform_filter``.

        Args:
            input: [...] the array.
            size: the number of neighbours along all axes, or along each.
            output: the element type of the result; None for that of the array.
            mode: as of `correlate`, one for all axes or one for each.
            cval: as of `correlate`.
            origin: as of `correlate`.
            axes: the axes; None for all.

        Raises:
            RuntimeError: for other numbers of arguments than of axes, and another mode, as SciPy.
            ValueError: for an origin outside of the neighbours.
        """
        xp, x, along = self._xp, array_of(input), _axes(input, axes)
        dtype = _result_type(x, output)
        for axis, length, edge, shift in zip(
            along,
            _of_axes("size", size, along),
            _of_axes("mode", mode, along),
            _of_axes("origin", origin, along),
            strict=True,
        ):
            if (count := integer("size", length)) > 1:
                sums = self._along(x, axis, np.ones(count), edge, cval, shift)
                x = _narrowed(xp, xp.divide(sums, count), dtype)
        return converted(xp, xp.copy(x) if x is input else x, dtype)

    def gaussian_filter(
        self, input: OperandLike, sigma: float | Sequence[float], order: int | Sequence[int] = 0,  # noqa: A002  # SciPy's name
        output: npt.DTypeLike | None = None, mode: str | Sequence[str] = "reflect", cval: complex = 0.0,
        truncate: float = 4.0, *, radius: int | Sequence[int] | None = None, axes: Axes = None,
    ) -> Any:  # fmt: skip
        """Returns an array smoothed by a Gaussian, or its derivatives, as ``scipy.ndimage.gaussian_filter``.

        Args:
            input: [...] the array.
            sigma: the standard deviation along all axes, or along each.
            order: the order of the derivative along all axes, or along each.
            output: the element type of the result; None for that of the array.
            mode: as of `correlate`, one for all axes or one for each.
            cval: as of `correlate`.
            truncate: the radius of the weights in standard deviations.
            radius: the radius along all axes, or along each; None for that of ``truncate``.
            axes: the axes; None for all.

        Raises:
            RuntimeError: for other numbers of arguments than of axes, and another mode, as SciPy.
            ValueError: for a negative order or radius.
        """
        xp, x, along = self._xp, array_of(input), _axes(input, axes)
        dtype = _result_type(x, output)
        for axis, deviation, degree, edge, reach in zip(
            along,
            _of_axes("sigma", sigma, along),
            _of_axes("order", order, along),
            _of_axes("mode", mode, along),
            _of_axes("radius", radius, along),
            strict=True,
        ):
            if deviation > 1e-15:
                width = int(truncate * float(deviation) + 0.5) if reach is None else integer("radius", reach)
                weights = _gaussian(float(deviation), degree, width)[::-1]
                x = _narrowed(xp, self._along(x, axis, weights, edge, cval, 0), dtype)
        return converted(xp, xp.copy(x) if x is input else x, dtype)

    def _summed(
        self, input: OperandLike, weights: OperandLike, output: Any, mode: Any, cval: Any, origin: Any, axes: Axes, *,  # noqa: A002
        is_convolution: bool,
    ) -> Any:  # fmt: skip
        xp, x, along = self._xp, array_of(input), _axes(input, axes)
        w = array_of(weights)
        if not isinstance(mode, str):
            raise RuntimeError(f"mode={mode!r}; give one for all axes")  # SciPy's class
        _check_mode(mode)
        if type_of(w).ndim != len(along):
            raise RuntimeError(f"weights has {type_of(w).ndim} axes; give one for each of {len(along)} axes")
        if 0 in type_of(w).shape:
            raise RuntimeError(f"weights is of shape {type_of(w).shape}; give one weight or more along each axis")
        shifts = _of_axes("origin", origin, along)
        sizes, is_complex = type_of(w).shape, type_of(w).dtype.kind == "c"
        if not is_convolution and is_complex:
            w = namespace_of(xp, w).conjugate(w)
        if is_convolution:
            w = namespace_of(xp, w).flip(w)
            shifts = [-shift - (1 - size % 2) for shift, size in zip(shifts, sizes, strict=True)]
        if np.iscomplexobj(cval) and type_of(x).dtype.kind != "c":
            raise ValueError(f"cval={cval} is complex and input is of {type_of(x).dtype.name}; give a real number")
        dtype = _result_type(x, output, w)
        wide = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
        widths = [_widths(*item) for item in zip(sizes, shifts, strict=True)]
        if 0 in type_of(x).shape or not along:
            result = xp.multiply(x, w if not sizes else 1)
            return converted(xp, result, dtype)
        padded = self._extended(converted(xp, x, wide), dict(zip(along, widths, strict=True)), mode, cval)
        total = self._of_numbers(padded, converted(xp, w, wide if is_complex else np.dtype(np.float64)), along, x)
        return _narrowed(xp, total, dtype)

    def _of_numbers(self, padded: Any, w: Any, along: Sequence[int], x: Any) -> Any:
        """Returns the correlation of an extended array of real or complex numbers.

        Infinities in one part do not make the other NaN: parts are correlated by themselves, as SciPy does.
        """
        shape, is_complex = type_of(x).shape, [type_of(item).dtype.kind == "c" for item in (padded, w)]
        if not any(is_complex):
            return self._of_padded(padded, w, along, shape)
        xp = self._xp
        (real, imag), (w_real, w_imag) = (
            (namespace_of(xp, item).real(item), namespace_of(xp, item).imag(item) if has_both else None)
            for item, has_both in zip((padded, w), is_complex, strict=True)
        )
        sums = [
            None if part is None or weights is None else self._of_padded(part, weights, along, shape)
            for part, weights in ((real, w_real), (imag, w_imag), (imag, w_real), (real, w_imag))
        ]
        others = [item for item in sums[2:] if item is not None]
        return xp.call(
            "complex",
            sums[0] if sums[1] is None else xp.subtract(*sums[:2]),
            others[0] if len(others) == 1 else xp.add(*others),
        )

    def _of_padded(self, padded: Any, w: Any, along: Sequence[int], shape: tuple[int, ...]) -> Any:
        """Returns the correlation of an extended array: the sum of those along its longest axis."""
        xp, sizes = self._xp, type_of(w).shape
        last = max(range(len(sizes)), key=lambda i: sizes[i])
        total: Any = None
        for offsets in itertools.product(*(range(1 if i == last else size) for i, size in enumerate(sizes))):
            row = part_of(w, tuple(slice(None) if i == last else offset for i, offset in enumerate(offsets)))
            for start, end in _runs(row):
                key = [slice(None)] * len(shape)
                for i, (axis, offset) in enumerate(zip(along, offsets, strict=True)):
                    first, count = (start, end - start) if i == last else (offset, 1)
                    key[axis] = slice(first, first + count - 1 + shape[axis])
                part, weights = part_of(padded, tuple(key)), part_of(row, (slice(start, end),))
                term = xp.convolve(part, namespace_of(xp, weights).flip(weights), "valid", along[last])
                total = term if total is None else xp.add(total, term)
        return xp.zeros(shape, type_of(padded).dtype) if total is None else total

    def _along(self, x: Any, axis: int, weights: NDArray, mode: str, cval: complex, origin: int) -> Any:
        """Returns the correlation along one axis, in float64 or complex128."""
        xp = self._xp
        wide = np.dtype(np.complex128 if type_of(x).dtype.kind == "c" else np.float64)
        widths = _widths(len(weights), origin)
        if 0 in type_of(x).shape:
            return converted(xp, x, wide)
        padded = self._extended(converted(xp, x, wide), {axis: widths}, mode, cval)
        return xp.convolve(padded, weights[::-1].astype(wide), "valid", axis)

    def _extended(self, x: Any, widths: Mapping[int, tuple[int, int]], mode: str, cval: complex) -> Any:
        _check_mode(mode)
        pairs = [widths.get(i, (0, 0)) for i in range(type_of(x).ndim)]
        if not any(map(any, pairs)):
            return x
        how = {"constant_values": np.asarray(cval, type_of(x).dtype)} if _MODES[mode] == "constant" else {}
        return self._xp.pad(x, pairs, _MODES[mode], **how)


def _runs(weights: Any) -> list[tuple[int, int]]:
    """Returns where the weights of a row begin and end that are not 0; all of weights on the mesh.

    Neighbours of weights up to the epsilon are left out, as by SciPy, since 0 times infinity is NaN.
    """
    if not isinstance(weights, np.ndarray):
        return [(0, type_of(weights).shape[0])]
    edges = np.flatnonzero(np.diff(np.abs(weights) > np.finfo(np.float64).eps, prepend=False, append=False))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def _check_mode(mode: str) -> None:
    if mode not in _MODES:
        raise RuntimeError(f"mode={mode!r}; give one of {', '.join(map(repr, _MODES))}")  # SciPy's class


def _gaussian(deviation: float, order: int, radius: int) -> NDArray:
    """Returns the weights of a Gaussian, or of its derivative of an order."""
    if order < 0:
        raise ValueError(f"order={order}; give 0 or more")
    if radius < 0:
        raise ValueError(f"radius={radius}; give 0 or more")
    at = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (deviation * deviation) * at**2)
    weights = weights / weights.sum()
    factors = np.array([1.0])  # of the powers of `at`: the derivative of p(x) exp(-x² / 2σ²) is of this form, too
    for _ in range(order):
        raised = np.append(0, factors) / -(deviation * deviation)
        raised[: len(factors) - 1] += factors[1:] * np.arange(1, len(factors))
        factors = raised
    scaled: NDArray = weights * np.polynomial.polynomial.polyval(at, factors)
    return scaled


def _axes(x: OperandLike, axes: Axes) -> tuple[int, ...]:
    ndim = type_of(x).ndim
    return tuple(range(ndim)) if axes is None else normalize_axis_tuple(axes, ndim, "axes")


def _of_axes(name: str, value: Any, along: Sequence[int]) -> list[Any]:
    """Returns an argument of each axis, of one for all or one for each."""
    if isinstance(value, str) or not hasattr(value, "__len__") or np.ndim(value) == 0:
        return [value] * len(along)
    if len(value) != len(along):
        raise RuntimeError(f"{name} has {len(value)} items; give one for each of {len(along)} axes")  # SciPy's class
    return [*value]


def _widths(size: int, origin: int) -> tuple[int, int]:
    """Returns by how many elements an array is extended for a number of weights.

    Raises:
        ValueError: for an origin outside of the weights.
    """
    before = size // 2 + origin
    if size and not 0 <= before < size:
        raise ValueError(f"origin={origin} is outside of {size} weights; give {-(size // 2)} to {(size - 1) // 2}")
    return before, size - 1 - before


def _result_type(x: Any, output: Any, *others: Any) -> DType:
    """Returns the element type of a result.

    Raises:
        TypeError: for an array in place of a type.
        RuntimeError: for element types that SciPy does not filter.
    """
    if isinstance(output, ArrayProperties | np.ndarray):
        raise TypeError("output is an array, and results are new arrays; give an element type, or assign the result")
    input_dtype = type_of(x).dtype
    if input_dtype == np.float16 or input_dtype.kind not in "biufc":
        raise RuntimeError(f"input is of {input_dtype.name}; convert it to float32")  # SciPy's class
    is_complex = input_dtype.kind == "c" or any(type_of(item).dtype.kind == "c" for item in others)
    dtype = input_dtype if output is None else parse_dtype(output)
    if dtype == np.float16:
        raise RuntimeError("output is of float16, which is not filtered; give float32")  # SciPy's class
    return np.promote_types(dtype, np.complex64) if is_complex else dtype


def _narrowed(xp: Any, x: Any, dtype: DType) -> Any:
    """Returns sums in the type of the result: integers are cut off, and wrap around."""
    if dtype.kind in "biu" and dtype.itemsize < np.dtype(np.int64).itemsize:
        x = xp.astype(x, np.int64)
    return converted(xp, x, dtype)

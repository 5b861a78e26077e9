"""Functions of single elements and of neighbours that combine the client's methods."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import typed
from shardcall.namespace.base import NamespaceBase, counted_axis, part_of, type_of
from shardcall.namespace.statistics import can_be_nan


class NumericNamespace(NamespaceBase):
    """Combinations of elementwise functions, and functions of neighbours along an axis."""

    def divmod(self, x: OperandLike, y: OperandLike) -> tuple[Any, Any]:
        """Returns the quotients rounded down and the remainders, as ``numpy.divmod``."""
        return self.floor_divide(x, y), self.remainder(x, y)

    def modf(self, x: OperandLike) -> tuple[Any, Any]:
        """Returns the fractional and the integral parts, as ``numpy.modf``."""
        dtype = type_of(x).dtype
        result = np.modf(np.zeros(1, dtype))[0].dtype
        x = x if result == dtype else self.astype(x, result)
        integral = self.trunc(x)
        fraction = self.where(self.isinf(x), 0, self.subtract(x, integral))
        return self.copysign(fraction, x), integral

    def fix(self, x: OperandLike) -> Any:
        """Returns the numbers rounded towards zero, as ``numpy.fix``."""
        return self.trunc(x)

    def heaviside(self, x1: OperandLike, x2: OperandLike) -> Any:
        """Returns 0 for negative numbers, 1 for positive ones and ``x2`` for zero, as ``numpy.heaviside``."""
        x1, x2 = typed("heaviside", (x1, x2))  # type: ignore[assignment]  # both are there
        dtype = np.heaviside(*(np.zeros(0, type_of(each).dtype) for each in (x1, x2))).dtype
        x, at_zero = self._converted(x1, dtype), self._converted(x2, dtype)
        step = self.where(self.less(x, 0), 0, self.where(self.greater(x, 0), 1, x))
        return self.where(self.equal(x, 0), at_zero, step)

    def isneginf(self, x: OperandLike) -> Any:
        """Returns where an array is negative infinity, as ``numpy.isneginf``."""
        return self.equal(_real(x, "isneginf"), -math.inf)

    def isposinf(self, x: OperandLike) -> Any:
        """Returns where an array is positive infinity, as ``numpy.isposinf``."""
        return self.equal(_real(x, "isposinf"), math.inf)

    def nan_to_num(
        self, x: OperandLike, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Any:
        """Returns an array with numbers in place of NaN and infinities, as ``numpy.nan_to_num``.

        Args:
            x: [...] the array.
            nan: in place of NaN.
            posinf: in place of infinity; None for the largest number of the element type.
            neginf: in place of negative infinity; None for the least number of the element type.

        Raises:
            TypeError: for an array in place of NaN that is of complex numbers, and others to replace.
        """
        own = type_of(x).dtype
        if own.kind == "f" and type_of(nan).dtype.kind == "c":
            raise TypeError(f"nan is of {type_of(nan).dtype.name} and x of {own.name}; give real numbers")
        if not can_be_nan(x):
            return self.copy(x)
        if type_of(x).dtype.kind == "c":
            parts = [self.nan_to_num(part(x), nan=nan, posinf=posinf, neginf=neginf) for part in (self.real, self.imag)]
            return self.add(parts[0], self.multiply(parts[1], 1j))
        most = float(ml_dtypes.finfo(type_of(x).dtype).max)  # type: ignore[no-untyped-call]
        high = self.where(self.equal(x, math.inf), most if posinf is None else posinf, x)
        low = self.where(self.equal(x, -math.inf), -most if neginf is None else neginf, high)
        return self._converted(self.where(self.isnan(x), nan, low), type_of(x).dtype)

    def sinc(self, x: OperandLike) -> Any:
        """Returns ``sin(πx) / πx``, 1 at 0, as ``numpy.sinc``."""
        y = self.multiply(x, math.pi)
        y = self.where(self.equal(y, 0), float(np.finfo(type_of(y).dtype).eps), y)
        return self.divide(self.sin(y), y)

    def cumulative_sum(
        self, x: OperandLike, *, axis: int | None = None, dtype: npt.DTypeLike | None = None,
        include_initial: bool = False,
    ) -> Any:  # fmt: skip
        """Returns the running sum along an axis, as ``numpy.cumulative_sum``.

        Raises:
            ValueError: for several axes and no ``axis``.
        """
        return self._cumulative(self.cumsum, 0, x, axis, dtype, include_initial)

    def cumulative_prod(
        self, x: OperandLike, *, axis: int | None = None, dtype: npt.DTypeLike | None = None,
        include_initial: bool = False,
    ) -> Any:  # fmt: skip
        """Returns the running product along an axis, as ``numpy.cumulative_prod``.

        Raises:
            ValueError: for several axes and no ``axis``.
        """
        return self._cumulative(self.cumprod, 1, x, axis, dtype, include_initial)

    def _cumulative(self, scan: Any, first: int, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
        x = x if type_of(x).ndim else self._of(x).reshape(x, 1)
        ndim = type_of(x).ndim
        if axis is None and ndim != 1:
            raise ValueError(f"x has {ndim} axes; name the axis of the scan")
        along = 0 if axis is None else axis
        scanned = scan(x, along, dtype)
        if not include_initial:
            return scanned
        result = type_of(scanned)
        shape = [1 if i == along % ndim else size for i, size in enumerate(result.shape)]
        return self.concatenate([np.full(shape, first, result.dtype), scanned], along)

    def trapezoid(self, y: OperandLike, x: OperandLike | None = None, dx: float = 1.0, axis: int = -1) -> Any:
        """Returns the integral along an axis by the trapezoidal rule, as ``numpy.trapezoid``.

        Args:
            y: [...] the values.
            x: [points] or [...] the coordinates; None for points with distances of ``dx``.
            dx: the distance of the points.
            axis: the axis.
        """
        ndim = type_of(y).ndim
        axis = counted_axis(axis, ndim)
        step: Any = dx
        if x is not None:
            of_x = self._of(x)
            step = of_x.diff(x) if type_of(x).ndim == 1 else of_x.diff(x, axis=axis)
            if type_of(x).ndim == 1:
                step = of_x.reshape(step, [-1 if i == axis % ndim else 1 for i in range(ndim)])
        after, before = (part_of(y, _along(ndim, axis, part)) for part in (slice(1, None), slice(None, -1)))
        return self.sum(self.divide(self.multiply(step, self.add(after, before)), 2.0), axis)

    def ediff1d(self, ary: OperandLike, to_end: OperandLike | None = None, to_begin: OperandLike | None = None) -> Any:
        """Returns the differences of the flattened array, between other numbers, as ``numpy.ediff1d``."""
        steps, dtype = self.diff(self.reshape(ary, -1)), type_of(ary).dtype
        if dtype.kind == "b":
            raise TypeError("ary is of bool, which cannot be subtracted; convert it, or use diff")
        ends = [to_begin, to_end]
        for name, each in zip(("to_begin", "to_end"), ends, strict=True):
            if each is not None and not np.can_cast(type_of(each).dtype, dtype, "same_kind"):
                raise TypeError(f"{name} is of {type_of(each).dtype.name} and ary of {dtype.name}; convert one of them")
        parts = [
            None if each is None else self._of(each).astype(self._of(each).reshape(each, -1), dtype) for each in ends
        ]
        present = [part for part in (parts[0], steps, parts[1]) if part is not None]
        return self.concatenate(present) if len(present) > 1 else steps

    def unwrap(
        self, p: OperandLike, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi
    ) -> Any:
        """Returns angles without jumps of more than half a period along an axis, as ``numpy.unwrap``."""
        steps = self.diff(p, axis=axis)
        dtype = np.result_type(type_of(steps).dtype, period)
        half, is_ambiguous = (period // 2, period % 2 == 0) if dtype.kind in "iu" else (period / 2, True)
        inside = self.add(self.remainder(self.add(steps, half), period), -half)
        if is_ambiguous:
            at_edge = self.logical_and(self.equal(inside, -half), self.greater(steps, 0))
            inside = self.where(at_edge, half, inside)
        jumps = self.less(self.absolute(steps), period / 2 if discont is None else discont)
        changes = self.cumsum(self.where(jumps, 0, self.subtract(inside, steps)), axis)
        ndim = type_of(p).ndim
        first, rest = (part_of(p, _along(ndim, axis, part)) for part in (slice(0, 1), slice(1, None)))
        return self.concatenate([self.astype(first, dtype), self.astype(self.add(rest, changes), dtype)], axis)


def _along(ndim: int, axis: int, part: slice) -> tuple[slice, ...]:
    return tuple(part if i == axis % ndim else slice(None) for i in range(ndim))


def _real(x: OperandLike, name: str) -> Any:
    if type_of(x).dtype.kind == "c":
        raise TypeError(f"x is of complex numbers, and {name} takes real ones; pass the real or the imaginary part")
    return x

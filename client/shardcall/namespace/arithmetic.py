"""Functions that combine several elementwise functions and reductions."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, is_number, type_of


class ArithmeticNamespace(NamespaceBase):
    """Combinations of elementwise functions and reductions."""

    def angle(  # with NumPy's second argument
        self, z: OperandLike, deg: bool = False
    ) -> Any:
        """Returns the angle of each element, in radians or degrees, as ``numpy.angle``."""
        angle = self.call("angle", z)
        return self.degrees(angle) if deg else angle

    def round(self, x: OperandLike, decimals: int = 0) -> Any:
        """Returns an array rounded to a number of decimals, as ``numpy.round``; integers by way of float64."""
        decimals = operator.index(decimals)
        if (dtype := type_of(x).dtype).kind == "b" and decimals:
            raise TypeError(f"decimals={decimals}, and x is of bool, which has none; convert it")
        if dtype.kind in "iu":
            if decimals >= 0:
                return self.copy(x)
            rounded = self.round(self.astype(x, np.float64), decimals)
            return self.astype(rounded if dtype == np.uint64 else self.astype(rounded, np.int64), dtype)
        if decimals == 0:
            return self.rint(x)
        scale = 10.0 ** abs(decimals)
        if decimals > 0:
            return self.divide(self.rint(self.multiply(x, scale)), scale)
        return self.multiply(self.rint(self.divide(x, scale)), scale)

    def ptp(self, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Returns the maximum less the minimum over axes, as ``numpy.ptp``."""
        return self.subtract(self.max(x, axis, keepdims=keepdims), self.min(x, axis, keepdims=keepdims))

    def count_nonzero(self, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Returns the number of elements over axes that are not zero, as ``numpy.count_nonzero``."""
        return self.sum(self.not_equal(x, 0), axis, keepdims=keepdims)

    def isclose(
        self, a: OperandLike, b: OperandLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Any:
        """Returns where two arrays are equal within tolerances, as ``numpy.isclose``."""
        # An inexact type, in which differences of integers do not wrap around.
        y = b * 1.0 if is_number(b) else self._converted(b, np.result_type(type_of(b).dtype, 1.0))  # type: ignore[operator]
        bound = atol + rtol * abs(y)
        near = self.less_equal(self.absolute(self.subtract(a, y)), bound)
        close = self.logical_or(self.logical_and(near, self._of(y).isfinite(y)), self.equal(a, y))
        if not equal_nan:
            return close
        return self.logical_or(close, self.logical_and(self._of(a).isnan(a), self._of(y).isnan(y)))

    def allclose(
        self, a: OperandLike, b: OperandLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Returns whether two arrays are equal within tolerances; waits for the result."""
        return bool(self.all(self.isclose(a, b, rtol, atol, equal_nan)))

    def array_equal(self, a1: OperandLike, a2: OperandLike, equal_nan: bool = False) -> bool:
        """Returns whether two arrays have one shape and the same elements; waits for the result."""
        if type_of(a1).shape != type_of(a2).shape:
            return False
        same = self.equal(a1, a2)
        if equal_nan:
            same = self.logical_or(same, self.logical_and(self._of(a1).isnan(a1), self._of(a2).isnan(a2)))
        return bool(self.all(same))

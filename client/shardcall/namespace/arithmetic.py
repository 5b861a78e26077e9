"""Functions that combine several elementwise functions and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, type_of


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
        if (dtype := type_of(x).dtype).kind in "iu":
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

    def dot(self, a: OperandLike, b: OperandLike) -> Any:
        """Returns the product of two arrays, as ``numpy.dot``; ``b`` has at most two axes.

        Raises:
            ValueError: if it has more.
        """
        if not (type_of(a).ndim and type_of(b).ndim):
            return self.multiply(a, b)
        if type_of(b).ndim > 2:
            raise ValueError(f"b has {type_of(b).ndim} axes, and dot takes two at most; use matmul, or einsum")
        return self.matmul(a, b)

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
        on_b = self._of(b)
        bound = on_b.add(on_b.multiply(on_b.absolute(b), rtol), atol)
        near = self.less_equal(self.absolute(self.subtract(a, b)), bound)
        close = self.logical_or(self.logical_and(near, on_b.isfinite(b)), self.equal(a, b))
        if not equal_nan:
            return close
        on_a = self._of(a)
        return self.logical_or(close, self.logical_and(on_a.isnan(a), on_b.isnan(b)))

    def allclose(
        self, a: OperandLike, b: OperandLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Returns whether two arrays are equal within tolerances; waits for the result."""
        return bool(self.all(self.isclose(a, b, rtol, atol, equal_nan)))

    def array_equal(self, a1: OperandLike, a2: OperandLike, equal_nan: bool = False) -> bool:
        """Returns whether two arrays have one shape and the same elements; waits for the result."""
        if type_of(a1).shape != type_of(a2).shape:
            return False
        same = self.isclose(a1, a2, 0.0, 0.0, equal_nan=True) if equal_nan else self.equal(a1, a2)
        return bool(self.all(same))

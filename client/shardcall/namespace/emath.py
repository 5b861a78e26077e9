"""Functions whose results are complex where real numbers have none, `client.xp.emath`."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import converted, type_of
from shardcall_core.types.tracebacks import shortened


@shortened
class EmathNamespace:
    """Functions with the names and arguments of ``numpy.emath``; all wait to see whether their results are complex.

    Args:
        xp: the namespace that this is part of.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def sqrt(self, x: OperandLike) -> Any:
        """Returns the square root, complex if a number is negative, as ``numpy.emath.sqrt``."""
        return self._xp.sqrt(self._extended(x))

    def log(self, x: OperandLike) -> Any:
        """Returns the natural logarithm, complex if a number is negative, as ``numpy.emath.log``."""
        return self._xp.log(self._extended(x))

    def log2(self, x: OperandLike) -> Any:
        """Returns the logarithm to the base 2, complex if a number is negative, as ``numpy.emath.log2``."""
        return self._xp.log2(self._extended(x))

    def log10(self, x: OperandLike) -> Any:
        """Returns the logarithm to the base 10, complex if a number is negative, as ``numpy.emath.log10``."""
        return self._xp.log10(self._extended(x))

    def logn(self, n: OperandLike, x: OperandLike) -> Any:
        """Returns the logarithm to the base n, complex if a number is negative, as ``numpy.emath.logn``."""
        return self._xp.divide(self.log(x), self.log(n))

    def power(self, x: OperandLike, p: OperandLike) -> Any:
        """Returns ``x**p``, complex if a number of x is negative, as ``numpy.emath.power``."""
        if type_of(p).dtype.kind in "iu" and self._is_any(self._xp.less(p, 0)):
            p = self._xp.multiply(p, 1.0)
        return self._xp.power(self._extended(x), p)

    def arccos(self, x: OperandLike) -> Any:
        """Returns the inverse cosine, complex if a number is above 1 or below -1, as ``numpy.emath.arccos``."""
        return self._xp.arccos(self._extended(x, limit=1))

    def arcsin(self, x: OperandLike) -> Any:
        """Returns the inverse sine, complex if a number is above 1 or below -1, as ``numpy.emath.arcsin``."""
        return self._xp.arcsin(self._extended(x, limit=1))

    def arctanh(self, x: OperandLike) -> Any:
        """Returns the inverse hyperbolic tangent, complex if a number is above 1 or below -1."""
        return self._xp.arctanh(self._extended(x, limit=1))

    def _extended(self, x: OperandLike, limit: int | None = None) -> Any:
        """Returns an array, complex if an element is negative, or larger than a limit or its negative."""
        xp, dtype = self._xp, type_of(x).dtype
        is_outside = None
        if dtype.kind != "c":
            is_outside = xp.less(x, 0) if limit is None else xp.greater(xp.absolute(x), limit)
        if is_outside is None or not self._is_any(is_outside):
            return x
        is_short = dtype in (np.float32, np.int8, np.int16, np.uint8, np.uint16)
        return converted(xp, x, np.dtype(np.complex64 if is_short else np.complex128))

    def _is_any(self, mask: Any) -> bool:
        return bool(self._xp.any(mask))

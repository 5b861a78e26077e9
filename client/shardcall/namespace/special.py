"""Functions of mathematical physics and statistics, `client.xp.special`."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import array_of, converted, type_of
from shardcall.namespace.statistics import can_be_nan, logsumexp
from shardcall_core.types.tracebacks import shortened

_MAX_EXPONENT = {"float32": 88.0, "float64": 709.0}
"""The largest integers whose exponentials are finite."""


@shortened
class SpecialNamespace:
    """Functions with the names and arguments of ``scipy.special``; of real numbers.

    Results are of float32 for arrays of float32, and of float64 for all others.

    Args:
        xp: the namespace that this is part of.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def expit(self, x: OperandLike, **options: Any) -> Any:
        """Returns the logistic function ``1 / (1 + exp(-x))``, as ``scipy.special.expit``."""
        xp, x = self._xp, _real(self._xp, x)
        limit = _MAX_EXPONENT[type_of(x).dtype.name]
        size = xp.exp(xp.minimum(xp.negative(x, **options), limit))
        return xp.where(xp.less(x, -limit), 0, xp.divide(1, xp.add(size, 1)))

    def erf(self, x: OperandLike, **options: Any) -> Any:
        """Returns the error function, as ``scipy.special.erf``."""
        return self._xp.call("erf", array_of(x), **options)

    def gammaln(self, x: OperandLike, **options: Any) -> Any:
        """Returns the logarithm of the size of the gamma function, as ``scipy.special.gammaln``."""
        return self._xp.call("gammaln", array_of(x), **options)

    def logsumexp(
        self, a: OperandLike, axis: Any = None, b: OperandLike | None = None, keepdims: bool = False,
        return_sign: bool = False,
    ) -> Any:  # fmt: skip
        """Returns the logarithm of the sum of exponentials over axes, as ``scipy.special.logsumexp``.

        Args:
            a: [...] the exponents, real.
            axis: the axis or axes; None for all.
            b: the factors of the exponentials; None for 1.
            keepdims: keep the reduced axes, with one element each.
            return_sign: return the logarithm of the size of the sum, and its sign; else a negative sum gives NaN.

        Raises:
            TypeError: for complex numbers.
        """
        xp = self._xp
        if type_of(a).dtype.kind == "c":
            raise TypeError(f"a is of {type_of(a).dtype.name}; give real numbers")
        if not return_sign:
            return logsumexp(xp, a, axis, b, keepdims)
        a = converted(xp, a, np.result_type(type_of(a).dtype, np.float16 if _is_float(a) else np.float64))
        factors: Any = 1 if b is None else b
        a, factors = xp.where(xp.equal(factors, 0), -np.inf, a), xp.broadcast_to(factors, _shape(a, factors))
        highest = xp.max(a, axis, keepdims=True, initial=-np.inf)
        highest = xp.where(xp.isfinite(highest), highest, 0)
        total = xp.sum(xp.multiply(factors, xp.exp(xp.subtract(a, highest))), axis, keepdims=True)
        result = xp.add(xp.log(xp.absolute(total)), highest), xp.sign(total)
        return result if keepdims else tuple(xp.squeeze(part, _axes(axis, type_of(a).ndim)) for part in result)


def _is_float(x: OperandLike) -> bool:
    return can_be_nan(x)


def _shape(*arrays: OperandLike) -> tuple[int, ...]:
    return np.broadcast_shapes(*(type_of(item).shape for item in arrays))


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return tuple(i % max(ndim, 1) for i in (axis if isinstance(axis, tuple) else (axis,)))


def _real(xp: Any, x: OperandLike) -> Any:
    """Returns an array of float32, or of float64 from other real numbers.

    Raises:
        TypeError: for complex numbers.
    """
    dtype = type_of(x).dtype
    if dtype.kind == "c":
        raise TypeError(f"x is of {dtype.name}; give real numbers")
    return array_of(x) if dtype == np.float32 else converted(xp, x, np.dtype(np.float64))

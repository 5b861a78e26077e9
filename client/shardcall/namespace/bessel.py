"""The modified Bessel function of the first kind of order 0, by two Chebyshev series."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, converted, type_of
from shardcall.namespace.control_flow import scan
from shardcall.namespace.creation import zeros_like
from shardcall_core.types.arrays import NDArray

_BOUND = 8.0
"""The largest number of the first series."""

_SMALL = (
    *(0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071),
    *(-0.02373741480589947, 0.010546460394594998, -0.004324309995050576, 0.0016394756169413357),
    *(-0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05, 1.6448448070728896e-05),
    *(-4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08),
    *(-1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10, 9.675809035373237e-11),
    *(-1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13, 7.676185498604936e-14),
    *(-1.1685332877993451e-14, 1.715391285555133e-15, -2.431279846547955e-16, 3.3307945188222384e-17),
    -4.4153416464793395e-18,
)
"""The coefficients of exp(-x) i0(x) in 2 x / bound - 1."""

_LARGE = (
    *(0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06),
    *(2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10),
    *(1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12),
    *(7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14),
    *(-9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16),
    *(-2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18),
    -7.233180487874754e-18,
)
"""The coefficients of the root of x times exp(-x) i0(x) in 2 bound / x - 1."""

_PAIRS: NDArray = np.array([_SMALL, (*_LARGE, *[0.0] * (len(_SMALL) - len(_LARGE)))]).T[::-1]
"""The coefficients of both, those of the highest terms first."""


def i0(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns the modified Bessel function of order 0 of real numbers, as ``numpy.i0``.

    Computed in the element type of floats, and in float64 for others.

    Raises:
        TypeError: for complex numbers.
    """
    dtype = type_of(x).dtype
    if dtype.kind == "c":
        raise TypeError(f"x is of {dtype.name}; give real numbers")
    x = xp.absolute(converted(xp, x, dtype if dtype.kind == "f" else np.dtype(np.float64)))
    is_small = xp.less_equal(x, _BOUND)
    position = xp.subtract(xp.where(is_small, xp.divide(x, _BOUND / 2), xp.divide(2 * _BOUND, x)), 1)
    *others, first = _PAIRS.astype(type_of(x).dtype)

    def add_term(carry: Any, pair: Any) -> tuple[Any, Any]:
        position, is_small, sum_before, sum_two_before = carry
        term = xp.where(is_small, pair[0], pair[1])
        total = xp.add(xp.subtract(xp.multiply(xp.multiply(position, 2), sum_before), sum_two_before), term)
        return (position, is_small, total, sum_before), ()

    zero = zeros_like(xp, position)
    (_, _, before, two_before), _ = scan(xp, add_term, (position, is_small, zero, zero), np.stack(others))
    # In this order i0 of 0 is exactly 1.
    series = xp.add(xp.subtract(xp.multiply(position, before), two_before), xp.where(is_small, *first))
    result = xp.multiply(xp.exp(x), series)
    return xp.where(is_small, result, xp.divide(result, xp.sqrt(x)))

"""Arithmetic with NumPy's results, where those of `jax.numpy` differ or are unspecified.

All functions take arrays of one working type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels.core.differentiation import is_differentiated, with_derivative
from shardcall_server.kernels.core.exactness import is_relaxed
from shardcall_server.kernels.numerics.ordering import (
    is_negative,
    is_positive,
    min_exponent,
    normalized,
    order_key,
)

_LN_2, _LOG10_2 = float(np.log(2)), float(np.log10(2))


def floor(x: jax.Array) -> jax.Array:
    """`numpy.floor` of floating-point numbers; XLA:CPU returns 0 for negative subnormal ones."""
    integral = jnp.floor(x)
    return jnp.where((integral == 0) & is_negative(x), -jnp.ones_like(x), integral)


def ceil(x: jax.Array) -> jax.Array:
    """`numpy.ceil` of floating-point numbers."""
    integral = jnp.ceil(x)
    return jnp.where((integral == 0) & is_positive(x), jnp.ones_like(x), integral)


def sqrt(x: jax.Array) -> jax.Array:
    """`numpy.sqrt`, of subnormal numbers too, except in programs that are not exact."""
    if is_relaxed():
        return jnp.sqrt(x)
    number, subnormal = normalized(x)
    return jnp.sqrt(number) * jnp.where(subnormal, 2.0 ** (min_exponent(x.dtype) // 2), 1.0).astype(x.dtype)


def log(x: jax.Array) -> jax.Array:
    """`numpy.log`, of subnormal numbers too, except in programs that are not exact."""
    return _log_of_normal(x, jnp.log, _LN_2)


def log10(x: jax.Array) -> jax.Array:
    """`numpy.log10`, of subnormal numbers too, except in programs that are not exact."""
    return _log_of_normal(x, jnp.log10, _LOG10_2)


def _log_of_normal(x: jax.Array, log_of: Callable[[jax.Array], jax.Array], of_two: float) -> jax.Array:
    if is_relaxed():
        return log_of(x)
    number, subnormal = normalized(x)
    return log_of(number) + jnp.where(subnormal, min_exponent(x.dtype) * of_two, 0.0).astype(x.dtype)


def _is_integer(x: jax.Array) -> bool:
    return x.dtype.kind in "iu"


def on_floats(function: Callable[..., jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """Returns the function for floats that leaves integers unchanged."""

    def on_numbers(x: jax.Array) -> jax.Array:
        return x if x.dtype.kind in "iub" else function(x)

    return on_numbers


def divide(x: jax.Array, y: jax.Array | float) -> jax.Array:
    """`numpy.divide`, which rounds once except in programs that are not exact."""
    return jnp.true_divide(x, jnp.asarray(y, x.dtype)) if is_relaxed() else _quotient(x, y)


def _quotient(x: jax.Array, y: jax.Array | float) -> jax.Array:
    """Returns x / y, rounded once.

    XLA:CPU multiplies by the reciprocal of a divisor that is broadcast, which is rounded too, and 0 for the largest:
    1,398,810 of 4 Mi quotients by 3 would differ from NumPy's. The select in `_beside` prevents that. It costs nothing
    measurable on 8 devices, and 14 % on one (2048² float64).
    """
    if is_differentiated():  # the derivative is 1 / y for NaN too
        value = jnp.true_divide(*map(lax.stop_gradient, (x, _beside(x, y))))
        return with_derivative(value, jnp.true_divide(x, jnp.asarray(y, x.dtype)))
    return jnp.true_divide(x, _beside(x, y))


def _beside(x: jax.Array, y: jax.Array | float) -> jax.Array:
    """Returns y, or x where x is NaN, which changes no quotient: the compiler sees no constant and no broadcast."""
    return jnp.where(jnp.isnan(x), lax.stop_gradient(x), jnp.asarray(y, x.dtype))


def _not_zero(y: jax.Array) -> jax.Array:
    return jnp.where(y == 0, jnp.ones((), y.dtype), y)


def fmod(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.fmod`: the remainder has x's sign; 0 for an integer by 0."""
    if not _is_integer(x):
        return lax.rem(x, y)
    return jnp.where(y == 0, 0, lax.rem(x, _not_zero(y)))


def remainder(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.remainder`: the remainder has y's sign; 0 for an integer by 0."""
    left = fmod(x, y)
    moved = jnp.where((left < 0) != (y < 0), left + y, left)
    if _is_integer(x):
        return jnp.where(left == 0, left, moved)
    return jnp.where((left == 0) & (y != 0), jnp.copysign(jnp.zeros_like(left), y), moved)


def floor_divide(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.floor_divide`; 0 for an integer by 0; the lowest integer by -1 wraps."""
    if _is_integer(x):
        divisor = _not_zero(y)
        quotient = lax.div(x, divisor)
        down = (lax.rem(x, divisor) != 0) & ((x < 0) != (y < 0))
        return jnp.where(y == 0, jnp.zeros_like(x), quotient - down.astype(x.dtype))
    # As npy_divmod: (x - remainder) / y is an integer except for rounding.
    left = lax.rem(x, y)
    quotient = _quotient(x - left, y)
    quotient = jnp.where((left != 0) & ((y < 0) != (left < 0)), quotient - 1, quotient)
    integral = jnp.floor(quotient)
    integral = jnp.where(quotient - integral > 0.5, integral + 1, integral)
    integral = jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(x), _quotient(x, y)), integral)
    return jnp.where(y == 0, _quotient(x, y), integral)


def reciprocal(x: jax.Array) -> jax.Array:
    """`numpy.reciprocal`: of integers 1 / x towards zero; of 0, where NumPy's result depends on the machine, 0."""
    if not _is_integer(x):
        return 1 / x
    integral = x == 1 if x.dtype.kind == "u" else (x == 1) | (x == -1)
    return jnp.where(integral, x, jnp.zeros_like(x))


def power(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.power`.

    Integers wrap; to a negative power, which NumPy refuses, the result is undefined.
    """
    if not _is_integer(x):
        return lax.pow(x, y)
    bits = x.dtype.itemsize * 8
    exponent = y
    result, base = jnp.ones_like(x), x
    # Unrolled, this is one pass over memory; a loop makes one for each bit.
    for _ in range(bits - (x.dtype.kind == "i")):
        result = jnp.where((exponent & 1) != 0, result * base, result)
        base = base * base
        exponent = exponent >> 1
    return result


def exp2(x: jax.Array) -> jax.Array:
    """`numpy.exp2`, exact for integers; ``exp(x * ln 2)`` alone errs by up to |x| roundings."""
    integral = jnp.where(jnp.isfinite(x), jnp.rint(x), jnp.zeros_like(x))
    integral = jnp.clip(integral, -2000, 2000)
    return jnp.ldexp(jnp.exp((x - integral) * _LN_2), integral.astype(np.int32))


def sign(x: jax.Array) -> jax.Array:
    """`numpy.sign`; that of a complex infinity, one of whose parts is finite, is that of its infinite part."""
    if x.dtype.kind == "f":
        return jnp.where(jnp.isnan(x), x, jnp.sign(order_key(x)).astype(x.dtype))
    if x.dtype.kind != "c":
        return jnp.sign(x)
    real, imaginary = lax.real(x), lax.imag(x)
    along_real, along_imaginary = jnp.isinf(real), jnp.isinf(imaginary)
    of_infinity = lax.complex(
        jnp.where(along_real, jnp.sign(real), jnp.zeros_like(real)),
        jnp.where(along_imaginary, jnp.sign(imaginary), jnp.zeros_like(imaginary)),
    )
    return jnp.where(along_real != along_imaginary, of_infinity, jnp.sign(x))


def arcsin(x: jax.Array) -> jax.Array:
    """`numpy.arcsin`; XLA's own halves x, which for the smallest normal numbers is zero."""
    # x**3 / 6 is below a fifth of a unit in the last place.
    return jnp.where(jnp.abs(x) < np.sqrt(np.finfo(x.dtype).eps), x, jnp.arcsin(x))


def cbrt(x: jax.Array) -> jax.Array:
    """`numpy.cbrt`; XLA's own errs by 3 units in the last place, which a step of Newton's method corrects."""
    x, subnormal = normalized(x)
    exponent = min_exponent(x.dtype)
    x = jnp.where(subnormal, x * 2 ** (exponent % 3), x)  # times the cube of a power of two is the operand
    root = jnp.cbrt(x)
    stays = (x == 0) | ~jnp.isfinite(x)
    divisor = jnp.where(stays, jnp.ones_like(x), root)
    root = jnp.where(stays, root, root - (root - x / (divisor * divisor)) / 3)
    return jnp.where(subnormal, root * 2.0 ** (exponent // 3), root)


def arctan2(y: jax.Array, x: jax.Array) -> jax.Array:
    """`numpy.arctan2`; where one operand is subnormal, both are multiplied by one power of two."""
    (tall, y_subnormal), (wide, x_subnormal) = normalized(y), normalized(x)
    scale = jnp.where(y_subnormal | x_subnormal, 2.0 ** -min_exponent(x.dtype), 1.0).astype(x.dtype)
    result = jnp.arctan2(jnp.where(y_subnormal, tall, y * scale), jnp.where(x_subnormal, wide, x * scale))
    # XLA's own is NaN for zeros that LLVM knows when it compiles, such as all rows that a shift fills (jaxlib 0.10.1).
    of_zeros = jnp.copysign(jnp.where(jnp.signbit(x), np.pi, 0).astype(x.dtype), y)
    are_zeros = (x == 0) & (y == 0) & ~(y_subnormal | x_subnormal)
    return jnp.where(are_zeros, of_zeros, result)


# The rational function of x**2 by which tanh(x) / x differs from 1 below 0.625. Cephes, tanh.c.
_TANH_NUMERATOR = (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3)
_TANH_DENOMINATOR = (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3)

# Polynomials P and Q of r**2, such that exp(r) = (Q + r P) / (Q - r P) up to |r| = ln(2) / 2. Cephes, exp.c.
_EXP_ODD = (1.26177193074810590878e-4, 3.02994407707441961300e-2, 9.99999999999999999910e-1)
_EXP_EVEN = (3.00198505138664455042e-6, 2.52448340349684104192e-3, 2.27265548208155028766e-1, 2.0)
_LN_2_HIGH, _LN_2_LOW = 6.93145751953125e-1, 1.42860682030941723212e-6


def tanh(x: jax.Array) -> jax.Array:
    """`numpy.tanh`; XLA's own errs by 7 units in the last place.

    One division serves both x * (1 + p / q) near 0 and 1 - 2 / (exp(2 * |x|) + 1). 2048² float64 on 8 devices take 9.1
    ms of processor time, XLA's own 7.0, and separate exponentials with one division 15.4.
    """
    # Neither branch may be infinite where the other is selected: the derivative would be NaN.
    size = jnp.where(jnp.abs(x) > 20, jnp.full_like(x, 20), jnp.abs(x))
    is_small, sign = size < 0.625, jnp.copysign(jnp.ones_like(x), x)
    small = jnp.where(is_small, x, jnp.zeros_like(x))
    power, even, odd = _exp_parts(2 * size)
    square = jnp.square(small)
    numerator = jnp.where(is_small, small * (square * _polynomial(_TANH_NUMERATOR, square)), -2 * (even - odd) * sign)
    denominator = jnp.where(is_small, _polynomial(_TANH_DENOMINATOR, square), power * (even + odd) + (even - odd))
    return jnp.where(x == 0, x, jnp.where(is_small, x, sign) + numerator / denominator)


def _exp_parts(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns p, a and b for which the exponential of x is p * (a + b) / (a - b), and p a power of 2.

    Args:
        x: numbers between 0 and 64.
    """
    if x.dtype != np.float64:
        return jnp.exp(x), jnp.ones_like(x), jnp.zeros_like(x)  # more accurate, and no slower
    exponent = lax.stop_gradient(jnp.rint(x * (1 / _LN_2)))
    rest = (x - exponent * _LN_2_HIGH) - exponent * _LN_2_LOW
    square = jnp.square(rest)
    # Processors convert floating-point numbers to integers of 32 bits several at once; not all do so to 64.
    biased = exponent.astype(np.int32).astype(np.int64) + 1023
    power = lax.bitcast_convert_type(biased << 52, x.dtype)
    return power, _polynomial(_EXP_EVEN, square), rest * _polynomial(_EXP_ODD, square)


def _polynomial(coefficients: Sequence[float], x: jax.Array) -> jax.Array:
    """Evaluates a polynomial by Horner's rule; the coefficient of the highest power comes first."""
    result = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + coefficient
    return result


def _half_exp(x: jax.Array) -> jax.Array:
    # exp(|x|) / 2, where exp(|x| - ln 2) errs by |x| roundings, and exp(|x|) alone is infinite too early.
    root = jnp.exp(jnp.abs(x) / 2)
    return root / 2 * root


# Of (sinh(x) / x - 1) / x**2 in x**2; below 1 the rest is less than a tenth of a unit in the last place of a float64.
_SINH_SERIES = tuple(1 / math.factorial(n) for n in range(17, 2, -2))


def sinh(x: jax.Array) -> jax.Array:
    """`numpy.sinh`; XLA's own errs by |x| roundings, and for complex numbers has no digits near 0."""
    if x.dtype.kind == "c":
        a, b = lax.real(x), lax.imag(x)
        exact = lax.complex(_times(sinh, a, jnp.cos(b)), _times(cosh, a, jnp.sin(b)))
        return of_finite(exact, jnp.sinh(x))
    half, square = _half_exp(x), jnp.square(jnp.where(jnp.abs(x) < 1, x, jnp.zeros_like(x)))
    below = x + x * (square * _polynomial(_SINH_SERIES, square))
    return jnp.where(jnp.abs(x) < 1, below, jnp.copysign(half - 1 / (4 * half), x))


def cosh(x: jax.Array) -> jax.Array:
    """`numpy.cosh`; see `sinh`."""
    if x.dtype.kind == "c":
        a, b = lax.real(x), lax.imag(x)
        exact = lax.complex(_times(cosh, a, jnp.cos(b)), _times(sinh, a, jnp.sin(b)))
        return of_finite(exact, jnp.cosh(x))
    half = _half_exp(x)
    return half + 1 / (4 * half)


def _times(function: Callable[[jax.Array], jax.Array], x: jax.Array, factor: jax.Array) -> jax.Array:
    """Returns ``function(x) * factor`` for sinh or cosh, finite also where the function itself is not."""
    root = jnp.exp(jnp.abs(x) / 2)
    large = root / 2 * factor * root
    if function is sinh:
        large = jnp.where(x < 0, -large, large)
    return jnp.where(jnp.abs(x) > 40, large, function(x) * factor)


def of_finite(exact: jax.Array, limit: jax.Array) -> jax.Array:
    """Returns each part of a complex number where it is finite, else that of another."""
    parts = [(part(exact), part(limit)) for part in (lax.real, lax.imag)]
    return lax.complex(*(jnp.where(jnp.isfinite(one), one, other) for one, other in parts))


def log1p(x: jax.Array) -> jax.Array:
    """`numpy.log1p`; XLA's own loses 7 bits of a float64."""
    # The select keeps XLA from making log1p of log(1 + x) again.
    above = jnp.where(x < np.inf, 1 + x, x)
    # Corrects the rounding of 1 + x: log(u) / (u - 1) hardly changes between 1 + x and u. Kahan, HP-15C manual.
    exact = jnp.log(above) * (x / (above - 1))
    return jnp.where((above == 1) | (x == np.inf), x, exact)


def arctanh(x: jax.Array) -> jax.Array:
    """`numpy.arctanh`."""
    size = jnp.abs(x)
    return jnp.copysign(log1p(2 * size / (1 - size)) / 2, x)


def log2(x: jax.Array) -> jax.Array:
    """`numpy.log2`, exact for powers of two."""
    x, subnormal = normalized(x)
    ordinary = (x > 0) & (x < np.inf)
    mantissa, exponent = jnp.frexp(jnp.where(ordinary, x, jnp.ones_like(x)))
    low = mantissa < np.sqrt(0.5)
    mantissa, exponent = jnp.where(low, mantissa * 2, mantissa), exponent - low
    exponent = exponent + jnp.where(subnormal, min_exponent(x.dtype), 0)
    return jnp.where(ordinary, exponent.astype(x.dtype) + jnp.log(mantissa) / _LN_2, jnp.log(x))


def angle(x: jax.Array) -> jax.Array:
    """`numpy.angle`."""
    return arctan2(jnp.imag(x), jnp.real(x))


def _bits(x: jax.Array) -> int:
    return int(x.dtype.itemsize) * 8


def left_shift(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.left_shift`: 0 where the shift is negative or as wide as the type."""
    return jnp.where((y >= 0) & (y < _bits(x)), lax.shift_left(x, y), jnp.zeros_like(x))


def right_shift(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.right_shift`: only sign bits where the shift is negative or as wide as the type."""
    if x.dtype.kind == "u":
        return jnp.where(y < _bits(x), lax.shift_right_logical(x, y), jnp.zeros_like(x))
    inside = (y >= 0) & (y < _bits(x))
    return lax.shift_right_arithmetic(x, jnp.where(inside, y, jnp.full_like(y, _bits(x) - 1)))

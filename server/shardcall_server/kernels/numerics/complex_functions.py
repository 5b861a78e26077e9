"""Functions of complex numbers with NumPy's results, including infinities, NaN and signs of zeros of C99, Annex G.

Most are computed where the imaginary part, or both, are not negative, and their results are reflected. A part of -0.0
is then on its own side of a branch cut.

Source: ISO/IEC 9899:1999, Annex G.6; NumPy, ``npy_math_complex.c.src``, for powers, quotients and signs.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels.numerics import arithmetic
from shardcall_server.kernels.numerics.ordering import is_nonzero

_Parts = tuple[jax.Array, jax.Array]
_OfParts = Callable[[jax.Array, jax.Array], _Parts]
_Function = Callable[[jax.Array], jax.Array]


def _parts(x: jax.Array) -> _Parts:
    return lax.real(x), lax.imag(x)


def _flipped(x: jax.Array, by: jax.Array) -> jax.Array:
    """Returns x, negated where ``by`` is negative. Unlike that of ``abs``, its derivative at 0 is not 0."""
    return jnp.where(jnp.signbit(by), -x, x)


def _on_upper_half(function: _OfParts) -> _Function:
    """Returns a function with ``f(conj(z)) = conj(f(z))`` from a function for nonnegative imaginary parts."""

    def on_plane(x: jax.Array) -> jax.Array:
        a, b = _parts(x)
        real, imaginary = function(a, _flipped(b, b))
        return lax.complex(real, _flipped(imaginary, b))

    return on_plane


def _on_quadrant(function: _OfParts) -> _Function:
    """Returns an odd function with ``f(conj(z)) = conj(f(z))`` from a function for nonnegative parts."""

    def on_half(a: jax.Array, b: jax.Array) -> _Parts:
        real, imaginary = function(_flipped(a, a), b)
        return _flipped(real, a), imaginary

    return _on_upper_half(on_half)


def _swapped(function: _Function) -> _Function:
    """Returns ``-1j * f(1j * z)`` for such an odd function: ``sin`` for ``sinh``."""

    def swapped(x: jax.Array) -> jax.Array:
        a, b = _parts(x)
        real, imaginary = _parts(function(lax.complex(b, a)))
        return lax.complex(imaginary, real)

    return swapped


def _by(function: _Function, a: jax.Array, b: jax.Array) -> _Parts:
    return _parts(function(lax.complex(a, b)))


def _or(function: _Function, otherwise: _Function) -> _Function:
    """Combines a function with another where its result is not finite: XLA's sine and cosine overflow too early."""
    return lambda x: arithmetic.of_finite(function(x), otherwise(x))


def absolute(x: jax.Array) -> jax.Array:
    """`numpy.absolute`: infinite where either part is infinite, even if the other is NaN."""
    a, b = _parts(x)
    return jnp.where(jnp.isinf(a) | jnp.isinf(b), jnp.full_like(a, jnp.inf), jnp.abs(x))


def sign(x: jax.Array) -> jax.Array:
    """`numpy.sign`: ``x / abs(x)``."""
    return jnp.where(is_nonzero(x), arithmetic.sign(x), jnp.zeros_like(x))


def square(x: jax.Array) -> jax.Array:
    """`numpy.square`; where it is finite, without NumPy's cancellation of the parts' squares."""
    product = x * x
    return jnp.where(_is_finite(product), jnp.square(x), product)


def _is_finite(x: jax.Array) -> jax.Array:
    return jnp.isfinite(lax.real(x)) & jnp.isfinite(lax.imag(x))


def divide(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.divide`, by Smith's method."""
    (a, b), (c, d) = _parts(x), _parts(y)
    along_real = jnp.abs(c) >= jnp.abs(d)
    larger, smaller = jnp.where(along_real, c, d), jnp.where(along_real, d, c)
    is_zero = ~is_nonzero(y)
    ratio = smaller / jnp.where(is_zero, jnp.ones_like(larger), larger)
    scale = 1 / (larger + smaller * ratio)
    real = jnp.where(along_real, a + b * ratio, a * ratio + b) * scale
    imaginary = jnp.where(along_real, b - a * ratio, b * ratio - a) * scale
    zero = jnp.zeros_like(a)
    return lax.complex(jnp.where(is_zero, a / zero, real), jnp.where(is_zero, b / zero, imaginary))


def reciprocal(x: jax.Array) -> jax.Array:
    """`numpy.reciprocal`, by Smith's method; NaN of 0."""
    a, b = _parts(x)
    along_real = jnp.abs(b) <= jnp.abs(a)
    larger, smaller = jnp.where(along_real, a, b), jnp.where(along_real, b, a)
    # The select keeps XLA from dividing by the product of two divisors, which is 0 for small numbers.
    ratio = jnp.where(jnp.isnan(larger), larger, smaller / larger)
    denominator = larger + smaller * ratio
    one, scaled = 1 / denominator, ratio / denominator
    return lax.complex(jnp.where(along_real, one, scaled), jnp.where(along_real, -scaled, -one))


def power(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.power`: integer powers below 100 by multiplication."""
    exponent, imaginary = _parts(y)
    is_integral = (imaginary == 0) & (jnp.abs(exponent) < 100) & (jnp.trunc(exponent) == exponent)
    result = jnp.where(is_integral, _integer_power(x, jnp.where(is_integral, exponent, 1)), lax.pow(x, y))
    undefined = jnp.full_like(x, complex(np.nan, np.nan))
    of_zero = jnp.where(exponent > 0, jnp.zeros_like(x), undefined)
    return jnp.where(y == 0, jnp.ones_like(x), jnp.where(is_nonzero(x), result, of_zero))


def _integer_power(x: jax.Array, exponent: jax.Array) -> jax.Array:
    count, one = jnp.abs(exponent).astype(np.int32), jnp.ones_like(x)
    result, factor = one, x
    # Unrolled, this is one pass over memory; a loop makes one for each bit.
    for bit in range(7):
        result = jnp.where((count >> bit) & 1 != 0, result * factor, result)
        factor = factor * factor
    for few, product in ((1, x), (2, x * x), (3, x * (x * x))):  # without a product with 1, which may be NaN
        result = jnp.where(exponent == few, product, result)
    return jnp.where(exponent < 0, divide(one, result), result)


@_on_upper_half
def _sqrt(a: jax.Array, b: jax.Array) -> _Parts:
    real, imaginary = _by(jnp.sqrt, a, b)
    inf, infinite = jnp.full_like(a, jnp.inf), jnp.isinf(b)
    real = jnp.where(infinite | (a == jnp.inf), inf, real)
    return real, jnp.where(infinite | (a == -jnp.inf), inf, imaginary)


def sqrt(x: jax.Array) -> jax.Array:
    """`numpy.sqrt`."""
    return _sqrt(x)


@_on_upper_half
def _exp(a: jax.Array, b: jax.Array) -> _Parts:
    real, imaginary = _by(jnp.exp, a, b)
    is_endless = ~jnp.isfinite(b)
    vanishes, grows = is_endless & (a == -jnp.inf), is_endless & (a == jnp.inf)
    zero, inf, nan = (jnp.full_like(a, value) for value in (0, np.inf, np.nan))
    real = jnp.where(vanishes, zero, jnp.where(grows, inf, real))
    return real, jnp.where(vanishes, zero, jnp.where(grows, nan, imaginary))


def exp(x: jax.Array) -> jax.Array:
    """`numpy.exp`."""
    return _exp(x)


def exp2(x: jax.Array) -> jax.Array:
    """`numpy.exp2`."""
    return exp(_scaled(x, np.log(2)))


def expm1(x: jax.Array) -> jax.Array:
    """`numpy.expm1`."""
    a, b = _parts(x)
    return lax.complex(jnp.expm1(a) * jnp.cos(b) - 2 * jnp.square(jnp.sin(b / 2)), jnp.exp(a) * jnp.sin(b))


def log(x: jax.Array) -> jax.Array:
    """`numpy.log`."""
    a, b = _parts(x)
    return lax.complex(_endless(x, jnp.log(x)), arithmetic.arctan2(b, a))


def log2(x: jax.Array) -> jax.Array:
    """`numpy.log2`."""
    return _scaled(log(x), 1 / np.log(2))


def log10(x: jax.Array) -> jax.Array:
    """`numpy.log10`."""
    return _scaled(log(x), 1 / np.log(10))


def log1p(x: jax.Array) -> jax.Array:
    """`numpy.log1p`, without its loss of digits near 0."""
    a, b = _parts(x)
    real = _endless(x, jnp.log1p(x))
    beside = jnp.where(b == 0, jnp.ones_like(b), jnp.abs(b))
    return lax.complex(jnp.where((a == -1) & (b != 0), jnp.log(beside), real), arithmetic.arctan2(b, a + 1))


def _endless(x: jax.Array, logarithm: jax.Array) -> jax.Array:
    # The real part of a logarithm of x, which is infinite if a part of x is, even if the other part is NaN.
    a, b = _parts(x)
    return jnp.where(jnp.isinf(a) | jnp.isinf(b), jnp.full_like(a, jnp.inf), lax.real(logarithm))


def _scaled(x: jax.Array, factor: float) -> jax.Array:
    # A complex array times a number. JAX would convert the number to complex, and infinity times its 0i is NaN.
    return lax.complex(lax.real(x) * float(factor), lax.imag(x) * float(factor))


def _sinh(finite: _Function) -> _Function:
    """Returns `numpy.sinh` from a function that is correct for finite x."""

    @_on_quadrant
    def on_plane(a: jax.Array, b: jax.Array) -> _Parts:
        real, imaginary = _by(finite, a, b)
        zero, nan = jnp.zeros_like(a), jnp.full_like(a, jnp.nan)
        is_endless = ~jnp.isfinite(b)
        real = jnp.where(is_endless, jnp.where(a == 0, zero, nan), real)
        return real, jnp.where(is_endless, nan, jnp.where(b == 0, b, imaginary))

    def sinh(x: jax.Array) -> jax.Array:
        a, b = _parts(x)
        real, imaginary = _parts(on_plane(x))
        # C99 leaves the sign of this infinity unspecified; NumPy's is positive.
        return lax.complex(jnp.where(jnp.isinf(a) & ~jnp.isfinite(b), jnp.full_like(a, jnp.inf), real), imaginary)

    return sinh


def sinh(x: jax.Array) -> jax.Array:
    """`numpy.sinh`."""
    return _sinh(arithmetic.sinh)(x)


def sin(x: jax.Array) -> jax.Array:
    """`numpy.sin`."""
    return _swapped(_sinh(_or(_swapped(jnp.sin), arithmetic.sinh)))(x)


def _cosh(finite: _Function) -> _Function:
    """Returns `numpy.cosh` from a function that is correct for finite x with nonnegative parts."""

    def cosh(x: jax.Array) -> jax.Array:
        a, b = _parts(x)
        real, imaginary = _by(finite, _flipped(a, a), _flipped(b, b))
        zero, inf, nan = (jnp.full_like(a, value) for value in (0, np.inf, np.nan))
        is_endless = ~jnp.isfinite(b)
        real = jnp.where(is_endless, jnp.where(jnp.isinf(a), inf, nan), real)
        imaginary = _flipped(jnp.where(b == 0, zero, imaginary), b)
        imaginary = jnp.where(jnp.isnan(a), imaginary, _flipped(imaginary, a))
        return lax.complex(real, jnp.where(is_endless, jnp.where(a == 0, zero, nan), imaginary))

    return cosh


def cosh(x: jax.Array) -> jax.Array:
    """`numpy.cosh`."""
    return _cosh(arithmetic.cosh)(x)


def cos(x: jax.Array) -> jax.Array:
    """`numpy.cos`: ``cosh(1j * x)``."""
    a, b = _parts(x)
    of_finite = _or(lambda z: jnp.conj(jnp.cos(lax.complex(lax.imag(z), lax.real(z)))), arithmetic.cosh)
    return _cosh(of_finite)(lax.complex(-b, a))


@_on_quadrant
def _tanh(a: jax.Array, b: jax.Array) -> _Parts:
    real, imaginary = _by(jnp.tanh, a, b)
    return jnp.where((a == 0) & ~jnp.isfinite(b), a, real), jnp.where(b == 0, b, imaginary)


def tanh(x: jax.Array) -> jax.Array:
    """`numpy.tanh`."""
    return _tanh(x)


@_on_quadrant
def _arcsinh(a: jax.Array, b: jax.Array) -> _Parts:
    real, imaginary = _by(jnp.arcsinh, a, b)
    unknown = (jnp.isnan(a) & ~jnp.isinf(b)) | (jnp.isnan(b) & ~jnp.isinf(a))
    nan = jnp.full_like(a, jnp.nan)
    return jnp.where(unknown, nan, real), jnp.where(unknown, jnp.where(b == 0, b, nan), imaginary)


def arcsinh(x: jax.Array) -> jax.Array:
    """`numpy.arcsinh`."""
    return _arcsinh(x)


@_on_quadrant
def _arctanh(a: jax.Array, b: jax.Array) -> _Parts:
    real, imaginary = _by(jnp.arctanh, a, b)
    # Next to 1, the square of b would vanish.
    beside = (a == 1) & (b > 0) & (b < np.finfo(a.dtype).eps)
    logarithm = jnp.log(jnp.where(beside, b, jnp.ones_like(b)))
    real = jnp.where(beside, (np.log(2).astype(a.dtype) - logarithm) / 2, real)
    unknown, zero, nan = (jnp.isnan(a) & ~jnp.isinf(b)) | jnp.isnan(b), jnp.zeros_like(a), jnp.full_like(a, jnp.nan)
    vanishes = jnp.isinf(a) | jnp.isinf(b) | (a == 0)
    return jnp.where(vanishes, zero, jnp.where(unknown, nan, real)), jnp.where(unknown, nan, imaginary)


def arctanh(x: jax.Array) -> jax.Array:
    """`numpy.arctanh`."""
    return _arctanh(x)


def tan(x: jax.Array) -> jax.Array:
    """`numpy.tan`."""
    return _swapped(tanh)(x)


def arcsin(x: jax.Array) -> jax.Array:
    """`numpy.arcsin`."""
    return _swapped(arcsinh)(x)


def arctan(x: jax.Array) -> jax.Array:
    """`numpy.arctan`."""
    return _swapped(arctanh)(x)


@_on_upper_half
def _arccos(a: jax.Array, b: jax.Array) -> _Parts:
    real, imaginary = _by(jnp.arccos, a, b)
    unknown = jnp.isnan(b) & ~jnp.isinf(a)
    real = jnp.where((a == 0) & unknown, jnp.full_like(a, np.pi / 2), real)
    return real, jnp.where(unknown, jnp.full_like(b, jnp.nan), imaginary)


def arccos(x: jax.Array) -> jax.Array:
    """`numpy.arccos`."""
    return _arccos(x)


@_on_upper_half
def _arccosh(a: jax.Array, b: jax.Array) -> _Parts:
    real, imaginary = _by(jnp.arccosh, a, b)
    unknown = jnp.isnan(b) & ~jnp.isinf(a)
    nan = jnp.full_like(a, jnp.nan)
    imaginary = jnp.where(unknown, jnp.where(a == 0, jnp.full_like(a, np.pi / 2), nan), imaginary)
    return jnp.where(unknown, nan, real), imaginary


def arccosh(x: jax.Array) -> jax.Array:
    """`numpy.arccosh`."""
    return _arccosh(x)

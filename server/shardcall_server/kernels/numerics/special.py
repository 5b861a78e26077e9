"""Functions of mathematical physics, and the parts of floating-point numbers.

They take arrays of float32 or float64; those of mathematical physics compute in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels.numerics import arithmetic

# Taylor series of ln Γ(2 + z) / z: 1 - γ, then (-1)^k (ζ(k) - 1) / k for k = 2, 3, …; |z| up to 1/2 needs so many.
_LOG_GAMMA = (
    *(0.42278433509846713, 0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986),
    *(0.0028905103307415234, -0.001192753911703261, 0.0005096695247430425, -0.00022315475845357939),
    *(9.945751278180853e-05, -4.492623673813314e-05, 2.050721277567069e-05, -9.439488275268397e-06),
    *(4.374866789907488e-06, -2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07),
    *(2.1207184805554665e-07, -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08),
    *(1.0838659214896955e-08, -5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09),
    *(5.731367241678862e-10, -2.7595228851242334e-10, 1.330476437424449e-10, -6.4229645638381e-11),
)
# Stirling's series: B(2k) / (2k (2k - 1)) for k = 1, 2, …; from 10 on, so many give all digits.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_STIRLING_MIN = 10
_STIRLING_CONSTANT = 0.5 * math.log(2 * math.pi) - 0.5


def erf(x: jax.Array) -> jax.Array:
    """The error function of float64."""
    return lax.erf(x)


def gammaln(x: jax.Array) -> jax.Array:
    """The logarithm of the size of the gamma function of float64.

    Its error is a few units in the last place, of the larger term where terms cancel: near the zeros that the function
    has at negative numbers.
    """
    size = jnp.abs(x)
    negative = (x < -0.5) & jnp.isfinite(x)
    value = _positive(jnp.where(negative, size, x))
    # Γ(x) Γ(-x) = -π / (x sin πx); the distance from the next integer is exact.
    sine = jnp.abs(jnp.sin(math.pi * (size - jnp.round(size))))
    mirrored = jnp.log(math.pi / (size * sine)) - value
    pole = (x == 0) | (negative & (sine == 0))
    return jnp.where(pole, jnp.inf, jnp.where(negative, mirrored, jnp.where(jnp.isinf(x), x, value)))


def _positive(x: jax.Array) -> jax.Array:
    """Returns ln |Γ(x)| for x from -0.5 on, without 0."""
    near_two = x >= 1.5
    steps = jnp.clip(jnp.floor(x - 1.5), 0, _STIRLING_MIN - 2)
    rest = jnp.where(near_two, x - steps, x)  # from 1.5 to below 2.5
    product = jnp.ones_like(x)
    for k in range(_STIRLING_MIN - 2):
        product *= jnp.where(k < steps, rest + k, 1)
    # ln Γ(2 + z), ln Γ(1 + z) = ln Γ(2 + z) - ln(1 + z), and ln Γ(z) = ln Γ(1 + z) - ln z
    near_one = (x >= 0.5) & ~near_two
    z = jnp.where(near_two, jnp.clip(rest - 2, -0.5, 0.5), jnp.where(near_one, x - 1, x))
    small = z * _polynomial(_LOG_GAMMA, z)
    below_two = jnp.where(near_two, 0, arithmetic.log1p(z))
    below_half = jnp.where(near_two | near_one, 0, arithmetic.log(jnp.abs(x)))
    small = small - below_two - below_half + jnp.log(product)
    inverse = 1 / jnp.where(x < 1, 1, x)
    large = (x - 0.5) * (arithmetic.log(jnp.abs(x)) - 1) + (
        _STIRLING_CONSTANT + inverse * _polynomial(_STIRLING, inverse * inverse)
    )
    return jnp.where(x >= _STIRLING_MIN, large, small)


def _polynomial(coefficients: Sequence[float], x: jax.Array) -> jax.Array:
    """Returns a polynomial; the first coefficient is that of the power 0."""
    result = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result


def frexp(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the mantissas of numbers, and their exponents as int32."""
    form = _Form(x.dtype)
    sign, exponent, digits, special = form.parts(x)
    bits = sign | ((form.bias - 1) << form.digits) | digits
    exponents = (exponent - (form.bias - 1)).astype(np.int32)
    mantissa = lax.bitcast_convert_type(bits, x.dtype)
    return jnp.where(special, x, mantissa), jnp.where(special, 0, exponents)


def ldexp(x: jax.Array, power: jax.Array) -> jax.Array:
    """Returns numbers times powers of 2, rounded once to the even one of two neighbours; subnormal ones too."""
    form = _Form(x.dtype)
    sign, exponent, digits, special = form.parts(x)
    limit = 4 * form.bias  # beyond which every result is 0 or infinite
    raised = exponent + jnp.clip(power.astype(np.int64), -limit, limit).astype(form.kind)
    shift = jnp.clip(1 - raised, 1, form.digits + 2)
    mantissa = digits | form.one
    kept, lost = mantissa >> shift, mantissa & ((form.kind.type(1) << shift) - 1)
    half = form.kind.type(1) << (shift - 1)
    kept += ((lost > half) | ((lost == half) & (kept % 2 == 1))).astype(form.kind)
    normal = (jnp.clip(raised, 1, 2 * form.bias) << form.digits) | digits
    size = jnp.where(raised <= 0, kept, jnp.where(raised > 2 * form.bias, form.infinity, normal))
    return jnp.where(special, x, lax.bitcast_convert_type(sign | size, x.dtype))


class _Form:
    """The form of the numbers of a floating-point type.

    Attributes:
        kind: the integers of its size.
        digits: the bits of the mantissa that are stored.
        bias: what is added to exponents.
        one: the bit of the mantissa that is not stored.
        infinity: the bits of infinity.
    """

    def __init__(self, dtype: np.dtype) -> None:
        info = np.finfo(dtype)
        self.kind = np.dtype(f"int{8 * dtype.itemsize}")
        self.digits = self.kind.type(info.nmant)
        self.bias = self.kind.type(info.maxexp - 1)
        self.one = self.kind.type(1) << self.digits
        self.infinity = (2 * self.bias + 1) << self.digits

    def parts(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Returns the sign's bit, the exponent with its bias, the mantissa, and where a number has none of these.

        Of a subnormal number they are those of the normal one that it would be with smaller exponents.
        """
        bits = lax.bitcast_convert_type(x, self.kind)
        size = bits & np.iinfo(self.kind).max
        exponent, digits = size >> self.digits, size & (self.one - 1)
        moved = lax.clz(digits) - (self.kind.itemsize * 8 - 1 - self.digits)
        is_subnormal = exponent == 0
        exponent = jnp.where(is_subnormal, 1 - moved, exponent)
        digits = jnp.where(is_subnormal, (digits << jnp.clip(moved, 0, self.digits + 1)) & (self.one - 1), digits)
        return bits & np.iinfo(self.kind).min, exponent, digits, (size == 0) | (size >= self.infinity)

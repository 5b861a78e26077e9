"""Comparisons of floating-point numbers by their bits, exact for subnormal numbers too.

XLA:CPU treats subnormal numbers as zero in floating-point comparisons and arithmetic; it compares integers exactly.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels.core.element_types import widen


def order_key(x: jax.Array) -> jax.Array:
    """Returns signed integers in the order of real floating-point numbers; 0 for both zeros.

    The key of a NaN is beyond those of the infinities. An array of another type is its own key.
    """
    if x.dtype.kind != "f":
        return x
    bits = _bits(x)
    # Sign and magnitude as two's complement: the bits of a negative number are the lowest integer plus its magnitude.
    return jnp.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits)


def total_order(bits: jax.Array) -> jax.Array:
    """Returns the bits of numbers as integers in the order of the numbers, -0.0 before 0.0; or the bits of those."""
    limits = np.iinfo(bits.dtype)
    return bits ^ (lax.shift_right_arithmetic(bits, jnp.full_like(bits, limits.bits - 1)) & limits.max)


def is_nonzero(x: jax.Array) -> jax.Array:
    """Returns ``x != 0``: True for NaN, and for complex numbers one part of which is not zero."""
    if x.dtype.kind == "c":
        return is_nonzero(lax.real(x)) | is_nonzero(lax.imag(x))
    if x.dtype.kind != "f":
        return x != 0
    bits = _bits(x)
    return (bits & np.iinfo(bits.dtype).max) != 0


def truth(x: jax.Array) -> jax.Array:
    """Returns True where an element of an array of any type is true or not 0."""
    return x if x.dtype == np.bool_ else is_nonzero(widen(x, np.dtype(x.dtype)))


def is_negative_zero(x: jax.Array) -> jax.Array:
    """Returns True for -0.0 among real floating-point numbers."""
    bits = _bits(x)
    return bits == np.iinfo(bits.dtype).min


def is_negative(x: jax.Array) -> jax.Array:
    """Returns ``x < 0`` of real numbers: False for -0.0 and NaN."""
    return (order_key(x) < 0) & ~jnp.isnan(x)


def is_positive(x: jax.Array) -> jax.Array:
    """Returns ``x > 0`` of real numbers: False for NaN."""
    return (order_key(x) > 0) & ~jnp.isnan(x)


def are_ordered(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns True where neither of two real numbers is NaN."""
    return (x == x) & (y == y)  # noqa: PLR0124  # one instruction of the processor


def normalized(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns floats with subnormal ones divided by the smallest normal one, and a mask of the subnormal ones."""
    bits = _bits(x)
    magnitude = bits & np.iinfo(bits.dtype).max
    subnormal = (magnitude != 0) & (magnitude < np.finfo(x.dtype).smallest_normal.view(bits.dtype))
    # With the exponent of 1 the digits of a subnormal number represent the quotient plus 1.
    one = np.ones((), x.dtype)
    quotient = lax.bitcast_convert_type(magnitude | one.view(bits.dtype), x.dtype) - one
    return jnp.where(subnormal, jnp.where(bits < 0, -quotient, quotient), x), subnormal


def min_exponent(dtype: np.dtype) -> int:
    """Returns the exponent of two that is the smallest normal number of a type; it is even."""
    return int(np.finfo(dtype).minexp)


def to_double(x: jax.Array) -> jax.Array:
    """Returns float32 as float64, where a subnormal float32 is normal; XLA:CPU's conversion makes it zero."""
    number, subnormal = normalized(x)
    return number.astype(np.float64) * jnp.where(subnormal, 2.0 ** min_exponent(x.dtype), 1.0)


def _bits(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))

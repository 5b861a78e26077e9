"""Comparisons as NumPy has them.

NaN wins in `maximum` and loses in `fmax`, complex numbers go by real, then imaginary part, and an int64 meets a uint64
by value.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

_Comparison = Callable[[jax.Array, jax.Array], jax.Array]


def _compare(x: jax.Array, y: jax.Array, strict: _Comparison, whole: _Comparison) -> jax.Array:
    """Compares by order: ``strict`` decides where real parts differ, ``whole`` where they do not."""
    if x.dtype.kind == "c":
        known = ~(jnp.isnan(jnp.imag(x)) | jnp.isnan(jnp.imag(y)))
        tied = jnp.real(x) == jnp.real(y)
        return (strict(jnp.real(x), jnp.real(y)) & known) | (tied & whole(jnp.imag(x), jnp.imag(y)))
    if x.dtype.kind == y.dtype.kind:
        return whole(x, y)
    # int64 and uint64: what is negative is below all of the other's; by then both are of one type.
    negative = (x < 0) if x.dtype.kind == "i" else (y < 0)
    lower, upper = (-1, 0) if x.dtype.kind == "i" else (0, -1)
    by_sign = whole(jnp.full_like(negative, lower, jnp.int8), jnp.full_like(negative, upper, jnp.int8))
    return jnp.where(negative, by_sign, whole(x.astype(jnp.uint64), y.astype(jnp.uint64)))


def less(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.less`."""
    return _compare(x, y, lax.lt, lax.lt)


def less_equal(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.less_equal`."""
    return _compare(x, y, lax.lt, lax.le)


def greater(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.greater`."""
    return _compare(x, y, lax.gt, lax.gt)


def greater_equal(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.greater_equal`."""
    return _compare(x, y, lax.gt, lax.ge)


def equal(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.equal`."""
    return x == y if x.dtype == y.dtype else _compare(x, y, lax.eq, lax.eq)


def not_equal(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.not_equal`."""
    return ~equal(x, y)


def maximum(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.maximum`: NaN where either is."""
    return jnp.where(greater_equal(x, y) | jnp.isnan(x), x, y)


def minimum(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.minimum`: NaN where either is."""
    return jnp.where(less_equal(x, y) | jnp.isnan(x), x, y)


def fmax(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.fmax`: the other where one is NaN."""
    return jnp.where(greater_equal(x, y) | jnp.isnan(y), x, y)


def fmin(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.fmin`: the other where one is NaN."""
    return jnp.where(less_equal(x, y) | jnp.isnan(y), x, y)


def clip(x: jax.Array, low: jax.Array | None, high: jax.Array | None) -> jax.Array:
    """`numpy.clip`: the bound where x does not lie strictly inside it, and where the bound is NaN."""
    x = x if low is None else jnp.where(_is_above(x, low) | jnp.isnan(x), x, low)
    return x if high is None else jnp.where(_is_above(high, x) | jnp.isnan(x), x, high)


def _is_above(x: jax.Array, y: jax.Array) -> jax.Array:
    """`greater`, which of complex numbers does not ask whether imaginary parts are known."""
    if x.dtype.kind != "c":
        return greater(x, y)
    tied = jnp.real(x) == jnp.real(y)
    return jnp.where(tied, jnp.imag(x) > jnp.imag(y), jnp.real(x) > jnp.real(y))

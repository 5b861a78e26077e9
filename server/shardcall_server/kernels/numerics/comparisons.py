"""Comparisons with NumPy's results.

NaN wins in `maximum` and loses in `fmax`, complex numbers go by real, then imaginary part, and int64 and uint64 are
compared by value.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from shardcall_server.kernels.core.exactness import is_relaxed
from shardcall_server.kernels.numerics.ordering import are_ordered, is_nonzero, order_key

_Comparison = Callable[[jax.Array, jax.Array], jax.Array]


def _compare(x: jax.Array, y: jax.Array, strict: _Comparison, comparison: _Comparison) -> jax.Array:
    """Compares by order: ``strict`` decides where real parts differ, ``comparison`` where they do not."""
    if x.dtype.kind == "c":
        (real, imaginary), (other_real, other_imaginary) = _parts(x), _parts(y)
        above = _by_keys(real, other_real, strict) & are_ordered(imaginary, other_imaginary)
        return above | (_by_keys(real, other_real, lax.eq) & _by_keys(imaginary, other_imaginary, comparison))
    if x.dtype.kind == y.dtype.kind:
        return _by_keys(x, y, comparison)
    # int64 and uint64: negative numbers are below all of the other type; the rest is compared as uint64.
    negative = (x < 0) if x.dtype.kind == "i" else (y < 0)
    lower, upper = (-1, 0) if x.dtype.kind == "i" else (0, -1)
    by_sign = comparison(jnp.full_like(negative, lower, jnp.int8), jnp.full_like(negative, upper, jnp.int8))
    return jnp.where(negative, by_sign, comparison(x.astype(jnp.uint64), y.astype(jnp.uint64)))


def _by_keys(x: jax.Array, y: jax.Array, comparison: _Comparison) -> jax.Array:
    if is_relaxed():
        return comparison(x, y)
    compared = comparison(order_key(x), order_key(y))
    return compared & are_ordered(x, y) if x.dtype.kind == "f" else compared


def _parts(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return lax.real(x), lax.imag(x)


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
    if x.dtype.kind == "c":
        return _by_keys(lax.real(x), lax.real(y), lax.eq) & _by_keys(lax.imag(x), lax.imag(y), lax.eq)
    return _compare(x, y, lax.eq, lax.eq)


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


def logical_and(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.logical_and`."""
    return is_nonzero(x) & is_nonzero(y)


def logical_or(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.logical_or`."""
    return is_nonzero(x) | is_nonzero(y)


def logical_xor(x: jax.Array, y: jax.Array) -> jax.Array:
    """`numpy.logical_xor`."""
    return is_nonzero(x) ^ is_nonzero(y)


def logical_not(x: jax.Array) -> jax.Array:
    """`numpy.logical_not`."""
    return ~is_nonzero(x)


def clip(x: jax.Array, low: jax.Array | None, high: jax.Array | None) -> jax.Array:
    """`numpy.clip`: the bound where x is not strictly inside it, and where the bound is NaN.

    Where both bounds are scalars, which may lack x's axes, x keeps its value, and the sign of a zero, where it equals a
    bound.
    """
    scalars = x.dtype.kind != "c" and low is not None and high is not None and low.ndim == high.ndim == 0
    shape = jnp.broadcast_shapes(*(bound.shape for bound in (x, low, high) if bound is not None))
    x = jnp.broadcast_to(x, shape)
    low, high = (None if bound is None else jnp.broadcast_to(bound, shape) for bound in (low, high))

    def stays(lower: jax.Array, upper: jax.Array, bound: jax.Array) -> jax.Array:
        inside = ~(_is_above(lower, upper) | jnp.isnan(bound)) if scalars else _is_above(upper, lower)
        return inside | jnp.isnan(x)

    x = x if low is None else jnp.where(stays(low, x, low), x, low)
    return x if high is None else jnp.where(stays(x, high, high), x, high)


def _is_above(x: jax.Array, y: jax.Array) -> jax.Array:
    """`greater`, except that NaN in the imaginary parts of complex numbers is ignored where the real parts differ."""
    if x.dtype.kind != "c":
        return greater(x, y)
    (real, imaginary), (other_real, other_imaginary) = _parts(x), _parts(y)
    tied = _by_keys(real, other_real, lax.eq)
    return jnp.where(tied, _by_keys(imaginary, other_imaginary, lax.gt), _by_keys(real, other_real, lax.gt))

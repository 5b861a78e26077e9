"""Cutting padding off, putting it on, and keeping it out of sums."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax


def fit(array: jax.Array, shape: Sequence[int]) -> jax.Array:
    """Cuts or pads every axis at its end, so that the array has ``shape``; what it adds is zero."""
    array = lax.slice(array, [0] * array.ndim, [min(n, m) for n, m in zip(array.shape, shape, strict=True)])
    missing = [(0, m - n, 0) for n, m in zip(array.shape, shape, strict=True)]
    return lax.pad(array, jnp.zeros((), array.dtype), missing) if any(n for _, n, _ in missing) else array


def mask_from(array: jax.Array, axis: int, length: jax.Array | int) -> jax.Array:
    """Zeroes what lies at ``length`` and beyond along an axis.

    A select, not a product: padding may hold NaN. ``length`` may be negative or beyond the end.
    """
    index = lax.broadcasted_iota(jnp.int32, array.shape, axis)
    return jnp.where(index < length, array, jnp.zeros((), array.dtype))

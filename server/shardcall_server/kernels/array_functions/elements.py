"""Rows of the table for functions that act element by element and are not in `ufuncs.UFUNCS`."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.row import AlignedAxes, CallShapes, ResultBlock, Row
from shardcall_server.kernels.core.element_types import convert


def broadcast_axes(call: CallShapes) -> AlignedAxes:
    """Aligns the axes of operands that are broadcast."""

    def axes(shape: tuple[int, ...]) -> tuple[int | None, ...]:
        behind = len(call.shape) - len(shape)
        return tuple(i + behind if size == call.shape[i + behind] else None for i, size in enumerate(shape))

    return tuple(axes(shape or ()) for shape in call.shapes)


def _nextafter(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    """Counts in integers, since floating-point arithmetic treats subnormal numbers as zero."""
    x, y = (convert(required(operand), block.dtype) for operand in operands)
    x, y = (jnp.broadcast_to(array, block.shape) for array in (x, y))
    here, there = _key(x), _key(y)
    key = here + _direction(here, there).astype(here.dtype)
    bits = jnp.where(key < 0, np.iinfo(key.dtype).min - key, key)
    moved = lax.bitcast_convert_type(bits, block.dtype)
    zero = jnp.where(here < 0, jnp.asarray(-0.0, block.dtype), jnp.asarray(0.0, block.dtype))
    moved = jnp.where(key == 0, zero, moved)
    is_nan = jnp.isnan(x) | jnp.isnan(y)
    return jnp.where(is_nan, jnp.asarray(jnp.nan, block.dtype), jnp.where(here == there, y, moved))


def _key(x: jax.Array) -> jax.Array:
    """Returns integers in the order of the numbers, consecutive for neighbours; 0 for both zeros."""
    dtype = np.dtype(f"int{8 * x.dtype.itemsize}")
    bits = lax.bitcast_convert_type(x, dtype)
    return jnp.where(bits < 0, np.iinfo(dtype).min - bits, bits)


def _direction(here: jax.Array, there: jax.Array) -> jax.Array:
    return (there > here).astype(np.int8) - (there < here).astype(np.int8)


def _complex(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    parts = (jnp.broadcast_to(required(operand), block.shape) for operand in operands)
    return lax.complex(*parts)


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        Row("nextafter", _nextafter, aligned=broadcast_axes),
        Row("complex", _complex, aligned=broadcast_axes),
    )

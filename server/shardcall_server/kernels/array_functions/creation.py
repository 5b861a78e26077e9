"""Rows of the table for functions that create arrays: every device computes its own block, and nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.row import CallShapes, ResultBlock, Row
from shardcall_server.kernels.core.bits import moved_in_block
from shardcall_server.kernels.core.element_types import is_narrow_float, narrow, round_to, widen


def _free(call: CallShapes) -> tuple[tuple[int | None, ...], ...]:
    return ((),) * len(call.shapes)


def _rounded(product: jax.Array) -> jax.Array:
    """Returns a product that is rounded before it is added to something.

    LLVM computes ``a * b + c`` with one rounding, NumPy with two. A select between them prevents that; barriers and
    `lax.reduce_precision` do not, since they are removed earlier (jaxlib 0.10.2).
    """
    return jnp.where(jnp.isnan(product), jnp.nan, product)


def _on_line(start: jax.Array, step: jax.Array, index: jax.Array) -> jax.Array:
    """Returns ``start + index * step``, part by part of complex numbers."""
    if start.dtype.kind == "c":
        parts = [_on_line(part(start), part(step), index) for part in (lax.real, lax.imag)]
        return lax.complex(*parts)
    product = index.astype(start.dtype) * step
    return start + (_rounded(product) if start.dtype.kind == "f" else product)


def _in_steps(start: jax.Array, step: jax.Array, index: jax.Array, dtype: np.dtype) -> jax.Array:
    """Returns ``start + index * step``, where `numpy.linspace` rounds each of the three to a narrow type."""
    if not is_narrow_float(dtype):
        return _on_line(start, step, index)
    count = round_to(index.astype(start.dtype), dtype)
    return start + round_to(count * step, dtype)


def _full(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    return moved_in_block(lambda bits: lax.broadcast(bits, block.shape), required(operands[-1]))


def _arange(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    start, second = (widen(required(operand), block.dtype) for operand in operands)
    index = block.index(0)
    if block.dtype == np.bool_:
        return jnp.where(index == 0, start, second)
    return narrow(_on_line(start, second - start, index), block.dtype)


def _linspace(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    start, step, last = (None if operand is None else widen(operand, block.dtype) for operand in operands)
    index = block.index(0)
    values = _in_steps(required(start), required(step), index, block.dtype)
    if last is not None:
        values = jnp.where(index == max(block["size"] - 1, 1), last, values)
    return narrow(values, block.dtype)


def _eye(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    (k,) = map(required, operands)
    min_offset, max_offset = -(2**62), 2**62
    offset = (
        jnp.minimum(k, max_offset).astype(np.int64)
        if k.dtype.kind == "u"
        else jnp.clip(k.astype(np.int64), min_offset, max_offset)
    )
    on_diagonal = block.index(1).astype(np.int64) - block.index(0).astype(np.int64) == offset
    return narrow(widen(on_diagonal, block.dtype), block.dtype)


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        Row("full", _full, aligned=_free, is_free=True, is_created=True),
        Row("full_like", _full, aligned=lambda call: (tuple(range(len(call.x))), ()), is_free=True),
        Row("arange", _arange, aligned=_free, is_free=True, is_created=True),
        Row("linspace", _linspace, aligned=_free, is_free=True, is_created=True),
        Row("eye", _eye, aligned=_free, is_free=True, is_created=True),
    )

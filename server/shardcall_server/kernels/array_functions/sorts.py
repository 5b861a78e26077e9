"""Rows of the table for functions that sort an axis or take elements along it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.extracts import along_of, take_of
from shardcall_server.kernels.array_functions.row import AlignedAxes, CallShapes, IndexCheck, ResultBlock, Row
from shardcall_server.kernels.core.bits import moved_in_block
from shardcall_server.kernels.core.element_types import convert, widen
from shardcall_server.kernels.numerics.sorting import sorted_along, sorting_indices


def _but_axis(call: CallShapes) -> AlignedAxes:
    axis = call["axis"]
    if axis is None:
        return ((None,) * len(call.x),)
    return (tuple(None if i == axis % len(call.x) else i for i in range(len(call.x))),)


def _origins(call: CallShapes) -> tuple[int | None, ...]:
    if call["axis"] is None:
        return (0 if call.x else None,)
    return tuple(range(len(call.x)))


def _argsort(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x = required(operands[0])
    flat = x.reshape(-1) if block["axis"] is None else x
    return convert(sorting_indices(flat, block["axis"] or 0), block.dtype)


def _sort(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x = required(operands[0])
    return sorted_along(x.reshape(-1) if block["axis"] is None else x, block["axis"] or 0)


def _take_aligned(call: CallShapes) -> AlignedAxes:
    x, indices, axis = call.x, call.shapes[1] or (), call["axis"]
    if axis is None:
        return (None,) * len(x), tuple(range(len(indices)))
    axis, more = axis % len(x), len(indices) - 1
    of_x = tuple(None if i == axis else i if i < axis else i + more for i in range(len(x)))
    return of_x, tuple(axis + i for i in range(len(indices)))


def _valid(indices: jax.Array, count: int) -> jax.Array:
    """Returns indices counted from the first element; those that are refused become any index."""
    if indices.dtype.kind == "u":
        return indices.astype(np.uint64).astype(np.int64)
    wide = indices.astype(np.int64)
    return jnp.where(wide < 0, wide + count, wide)


def _valid_of(indices: jax.Array, count: int) -> jax.Array:
    return _valid(widen(indices, np.dtype(indices.dtype)), count)


def _take_count(call: CallShapes) -> int:
    return math.prod(call.x) if call["axis"] is None else call.x[call["axis"]]


def _take(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, indices = map(required, operands)
    taken = _valid_of(indices, _take_count(block.call))

    def move(bits: jax.Array) -> jax.Array:
        if 0 in block.shape:
            return jnp.zeros(block.shape, bits.dtype)
        if block["axis"] is None:
            return jnp.take(bits.reshape(-1), taken, axis=0, mode="clip")
        if not taken.ndim:
            row: jax.Array = lax.dynamic_index_in_dim(bits, taken, block["axis"], keepdims=False)
            return row
        return jnp.take(bits, taken, axis=block["axis"], mode="clip")

    return moved_in_block(move, x)


def _along_aligned(call: CallShapes) -> AlignedAxes:
    axis = call["axis"] % len(call.x)
    return tuple(
        tuple(None if i == axis or size != call.shape[i] else i for i, size in enumerate(shape or ()))
        for shape in call.shapes
    )


def _along(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, indices = map(required, operands)
    axis, count = block["axis"], block.call.x[block["axis"]]
    taken = jnp.broadcast_to(_valid_of(indices, count), block.shape)
    shape = [count if i == axis else size for i, size in enumerate(block.shape)]

    def move(bits: jax.Array) -> jax.Array:
        if 0 in block.shape:
            return jnp.zeros(block.shape, bits.dtype)
        return jnp.take_along_axis(jnp.broadcast_to(bits, shape), taken, axis, mode="clip")

    return moved_in_block(move, x)


def _keys_aligned(call: CallShapes) -> AlignedAxes:
    axis = call["axis"] % len(call.shape)
    return ((None, *(None if i == axis else i for i in range(len(call.shape)))),)


def _lexsort(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    keys, axis = required(operands[0]), block["axis"] % len(block.shape)
    indices = lax.broadcasted_iota(block.dtype, block.shape, axis)
    if 0 in block.shape:
        return indices

    def step(k: jax.Array, indices: jax.Array) -> jax.Array:
        key = jnp.take_along_axis(lax.dynamic_index_in_dim(keys, k, keepdims=False), indices, axis)
        return jnp.take_along_axis(indices, convert(sorting_indices(key, axis), block.dtype), axis)

    sorted_: jax.Array = lax.fori_loop(0, keys.shape[0], step, indices)
    return sorted_


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        Row("sort", _sort, aligned=_but_axis, origins=_origins, needs_complete_axes=True),
        Row("argsort", _argsort, aligned=_but_axis, origins=_origins, needs_complete_axes=True),
        Row("take", _take, aligned=_take_aligned, checks=(IndexCheck(1, _take_count),), exchange=take_of(_valid_of)),
        Row(
            "take_along_axis",
            _along,
            aligned=_along_aligned,
            checks=(IndexCheck(1, lambda call: call.x[call["axis"]]),),
            exchange=along_of(_valid_of),
        ),
        Row(
            "lexsort",
            _lexsort,
            aligned=_keys_aligned,
            origins=lambda call: tuple(range(1, len(call.x))),
            counts_result=True,
            needs_complete_axes=True,
        ),
    )

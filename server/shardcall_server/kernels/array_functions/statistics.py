"""Rows of the table for running products, counts, and positions among sorted numbers."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.row import (
    AlignedAxes,
    CallShapes,
    LocalSpecs,
    ResultBlock,
    Row,
    RowExchange,
)
from shardcall_server.kernels.core.blocks import index_type
from shardcall_server.kernels.core.element_types import convert, narrow, widen
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics.searching import positions_among

_PARTS = 8


def _but_axis(call: CallShapes) -> AlignedAxes:
    axis = call["axis"]
    if axis is None or not call.x:
        return ((None,) * len(call.x),)
    return (tuple(None if i == axis % len(call.x) else i for i in range(len(call.x))),)


def _origins(call: CallShapes) -> tuple[int | None, ...]:
    return tuple(range(len(call.x))) if call["axis"] is not None and call.x else (0 if call.x else None,)


def _cumprod(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x = widen(required(operands[0]), block.dtype)
    if 0 in block.shape:
        return jnp.zeros(block.shape, block.dtype)
    is_flat = block["axis"] is None or not x.ndim
    return narrow(jnp.cumprod(x.reshape(-1) if is_flat else x, axis=0 if is_flat else block["axis"]), block.dtype)


def _second(call: CallShapes) -> AlignedAxes:
    return (None,), tuple(range(len(call.shape)))


def _first(call: CallShapes) -> AlignedAxes:
    return tuple(
        tuple(range(len(shape or ()))) if k == 0 else (None,) * len(shape or ()) for k, shape in enumerate(call.shapes)
    )


def _searchsorted(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    a, v = map(required, operands)
    common = np.result_type(np.dtype(a.dtype), np.dtype(v.dtype))
    if not a.size or 0 in v.shape:
        return jnp.zeros(v.shape, block.dtype)
    sorted_, numbers = widen(convert(a, common), common), widen(convert(v, common), common)
    return positions_among(sorted_, numbers, block["side"]).astype(block.dtype)


def _counts(x: jax.Array, weights: jax.Array | None, length: int, valid: jax.Array | int) -> jax.Array:
    """Returns the sum of the weights of each integer from 0 to the length; others are left out.

    Args:
        x: [size] the integers.
        weights: [size] what to add for each of them; None for 1.
        length: the number of counts.
        valid: the number of integers that are no padding.
    """
    # As an unsigned number, a negative one is too large.
    wide = x.astype(np.uint64 if x.dtype.kind == "u" else np.int64).astype(np.uint64)
    index = jnp.minimum(wide, np.uint64(length))
    if not isinstance(valid, int) or valid < x.size:
        index = jnp.where(lax.iota(np.int64, x.size) < valid, index, np.uint64(length))
    index = index.astype(index_type(length + 1))
    if weights is not None:
        added = convert(weights, np.dtype(np.float64))
        return jnp.zeros(length + 1, added.dtype).at[index].add(added, mode="drop")[:length]
    # Counts of parts are independent, so that several threads count. 32 bits take 0.7 of the time of 64.
    part_count = _PARTS if _PARTS * (length + 1) <= x.size // _PARTS else 1
    dtype = index_type(x.size)
    counts = [
        jnp.zeros(length + 1, dtype).at[part].add(jnp.ones((), dtype), mode="promise_in_bounds")
        for part in jnp.array_split(index, part_count)
    ]
    return sum(counts[1:], counts[0])[:length].astype(np.int64)


def _bincount(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    return _counts(required(operands[0]), operands[1], block["length"], required(operands[0]).size)


def _sharded_counts(problem: Problem) -> LocalSpecs | str:
    x, weights = problem.in_specs
    if weights is not None and weights != x:
        return "every device counts integers with the weights that it has, so that weights is sharded as x"
    return LocalSpecs(problem.in_specs, ((),)) if any(required(x)) else "every device has all integers"


def _added_counts(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, (names,) = required(operands[0]), required(problem.in_specs[0])
    valid: jax.Array | int = x.size
    if block.call.x[0] % problem.mesh.size(names):
        valid = block.call.x[0] - lax.axis_index(names).astype(np.int64) * x.size
    counts: jax.Array = lax.psum(_counts(x, operands[1], block["length"], valid), names)
    return counts


def _interp(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, xp, fp, *outside = operands
    real = np.dtype(np.float64)
    points, coordinates = convert(required(x), real), convert(required(xp), real)
    values = convert(required(fp), block.dtype)
    left, right = (
        values[edge] if end is None else convert(end, block.dtype) for end, edge in zip(outside, (0, -1), strict=True)
    )
    if 0 in points.shape:
        return jnp.zeros(points.shape, block.dtype)
    last = len(coordinates) - 1
    before = jnp.clip(positions_among(coordinates, points, "right") - 1, 0, last)
    after = jnp.minimum(before + 1, last)
    low, high = values[before], values[after]
    ends = points, coordinates[before], coordinates[after]
    if block.dtype.kind == "c":  # by parts, of which one may be infinite
        inside = lax.complex(_between(*ends, low.real, high.real), _between(*ends, low.imag, high.imag))
    else:
        inside = _between(*ends, low, high)
    inside = jnp.where((before == last) | (coordinates[before] == points), low, inside)
    inside = jnp.where(points < coordinates[0], left, jnp.where(points > coordinates[-1], right, inside))
    return jnp.where(jnp.isnan(points), points.astype(block.dtype), inside) if last else inside


def _between(x: jax.Array, left: jax.Array, right: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Returns the values at x of the lines from (left, low) to (right, high), of real numbers."""
    slope = (high - low) / (right - left)
    value = slope * (x - left) + low
    # As NumPy does where a value or a slope is infinite: from the other end, then between equal values.
    value = jnp.where(jnp.isnan(value), slope * (x - right) + high, value)
    return jnp.where(jnp.isnan(value) & (low == high), low, value)


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    counts = RowExchange(
        "Every device counts the integers of its block, and the counts are added. Serves an array that is sharded.",
        _sharded_counts,
        _added_counts,
    )
    return (
        Row(
            "cumprod",
            _cumprod,
            aligned=_but_axis,
            origins=_origins,
            needs_complete_axes=True,
            reproducibility=Reproducibility.INTEGERS,
        ),
        Row("searchsorted", _searchsorted, aligned=_second, main=1),
        Row(
            "bincount",
            _bincount,
            origins=lambda _: (None,),
            needs_complete_axes=True,
            exchange=counts,
            reproducibility=Reproducibility.INTEGERS,
        ),
        Row("interp", _interp, aligned=_first, reproducibility=Reproducibility.NOT_PROMISED),
    )

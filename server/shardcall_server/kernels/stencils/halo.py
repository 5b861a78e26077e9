"""The rows that the blocks of a difference need from their neighbours, and the differences of these rows.

All counts are rows along the axis of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions.stencils import DiffParameters, edge_rows
from shardcall_core.layouts.layout import block_shape, required
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.blocks import index_type, pad_axis, rows
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.stencils.exchange import Exchange, ShardedAxis

MAX_FUSED = 4
"""The highest order that XLA computes in one pass over a block, if the needed rows are cut from the differences."""

MAX_UNROLLED = 16
"""The highest order whose steps are unrolled; above it they are a loop, so that compile time is bounded."""

_Index = TypeVar("_Index", int, jax.Array)


@dataclass(frozen=True)
class Geometry:
    """The rows of a difference in the blocks of x and of the result.

    Block d of the result needs result_block + n rows, from row ``shift(d)`` relative to block d of x. If the blocks of
    x and of the result have the same size, the shift is the same for all blocks; else it grows or falls with d.

    Attributes:
        along: the axis of the difference, as x has it.
        n: the order of the difference.
        before: the number of rows prepended.
        after: the number of rows appended.
        result_block: rows of one block of the result, padding included.
    """

    along: ShardedAxis
    n: int
    before: int
    after: int
    result_block: int

    @staticmethod
    def of(problem: Problem[DiffParameters]) -> Geometry:
        """Returns the geometry of a call whose result is sharded as x."""
        x, spec = required(problem.operands[0]), required(problem.in_specs[0])
        axis, n = problem.parameters.axis, problem.parameters.n
        before, after = (edge_rows(edge, axis) for edge in problem.operands[1:])
        result_block = block_shape(problem.results[0].shape, spec, problem.mesh)[axis]
        return Geometry(ShardedAxis.of(x, spec, axis, problem.mesh), n, before, after, result_block)

    @property
    def axis(self) -> int:
        """The axis of the difference."""
        return self.along.axis

    @property
    def devices(self) -> int:
        """The blocks D along the axis; 1 if it is not sharded."""
        return self.along.devices

    @property
    def block(self) -> int:
        """Rows B of one block of x, padding included."""
        return self.along.block

    def shift(self, device: _Index) -> _Index:
        """Returns the first row of its block of x that a device needs; negative for its neighbour's."""
        return device * (self.result_block - self.block) - self.before

    @property
    def shifts(self) -> tuple[int, int]:
        """The lowest and the highest shift."""
        first, last = self.shift(0), self.shift(self.devices - 1)
        return min(first, last), max(first, last)

    @property
    def left(self) -> int:
        """The maximum number of rows that a device needs from before its block."""
        return max(0, -self.shifts[0])

    @property
    def right(self) -> int:
        """The maximum number of rows that a device needs from after its block."""
        return max(0, self.shifts[1] + self.result_block + self.n - self.block)

    @property
    def distance(self) -> int:
        """The distance in blocks of the farthest row that a block needs."""
        return -(-max(self.left, self.right) // max(self.block, 1))

    def exchanges(self) -> tuple[Exchange, Exchange]:
        """Returns the exchanges of the rows before and after each block, with the padding that holds appended rows."""
        padded = replace(self.along, rows=self.block * self.devices)
        starts = [device * self.block for device in range(self.devices)]
        before = [(start - self.left, start) for start in starts]
        behind = [(start + self.block, start + self.block + self.right) for start in starts]
        return Exchange.of(padded, before, "none"), Exchange.of(padded, behind, "none")


def differences(
    parts: Sequence[jax.Array], start: int | jax.Array, count: int, g: Geometry, dtype: np.dtype
) -> jax.Array:
    """Returns the differences of concatenated parts, in the element type of the result.

    Args:
        parts: [L₁, …], [L₂, …], …; at least one has a row.
        start: the first row that is used.
        count: the number of differences; they need ``count + n`` rows.
        g: the geometry of the call.
        dtype: the element type of the result.
    """
    wide = [element_types.widen(part, dtype) for part in parts if part.shape[g.axis]]
    joined = jnp.concatenate(wide, g.axis) if len(wide) > 1 else wide[0]
    # Order 4 on (2,4) takes one pass (12.5 ms) if the rows are cut from the differences, and two (23.7) if they are cut
    # from the array. Above MAX_FUSED, a pass writes the block in any case, and cutting first leaves less work.
    if g.n <= MAX_FUSED:
        return element_types.narrow(rows(_difference(joined, g, dtype), start, count, g.axis), dtype)
    return element_types.narrow(_difference(rows(joined, start, count + g.n, g.axis), g, dtype), dtype)


def _difference(array: jax.Array, g: Geometry, dtype: np.dtype) -> jax.Array:
    # [L] → [L - n], in the working type.
    if g.n > MAX_UNROLLED:
        return _looped_difference(array, g, dtype)
    for _ in range(g.n):
        later = lax.slice_in_dim(array, 1, None, axis=g.axis)
        array = element_types.subtract(later, lax.slice_in_dim(array, 0, -1, axis=g.axis), dtype)
    return array


def _looped_difference(array: jax.Array, g: Geometry, dtype: np.dtype) -> jax.Array:
    # The shape stays; the rows that wrap around from the start invalidate one more row at the end in each step.
    def step(_: int, a: jax.Array) -> jax.Array:
        return element_types.subtract(jnp.roll(a, -1, g.axis), a, dtype)

    return rows(lax.fori_loop(0, g.n, step, array), 0, array.shape[g.axis] - g.n, g.axis)


def unsharded_block(block: jax.Array, prepend: jax.Array, append: jax.Array, g: Geometry, dtype: np.dtype) -> jax.Array:
    """Returns the differences along an axis that is not sharded."""
    return _with_edges(_inside(block, g.shift(0), g, dtype), prepend, block, append, g.shift(0), g, dtype)


def halo_block(block: jax.Array, prepend: jax.Array, append: jax.Array, g: Geometry, dtype: np.dtype) -> jax.Array:
    """Returns one device's block of the result, with the exchange of edge rows between neighbours.

    Args:
        block: [B, …], the device's block of x.
        prepend: [before, …] of type ``dtype``.
        append: [after, …] of type ``dtype``.
        g: the geometry of the call.
        dtype: the element type of the result.

    Returns:
        [result_block, …].
    """
    block = element_types.convert(block, dtype)
    if g.devices == 1:
        return unsharded_block(block, prepend, append, g, dtype)
    device = lax.axis_index(g.along.axis_names)
    start = device.astype(index_type(g.devices * (g.block + 1) + g.right)) * g.block
    if g.after:
        block = _overlay(block, append, start - g.along.rows, g.axis)
    lowest, highest = g.shifts
    shift = lowest if lowest == highest else g.shift(device)
    # On CPU, a collective blocks the thread of its device, so these differences come before the exchange. XLA:CPU
    # schedules them first by itself: a barrier changed the order in none of 256 programs. On (8,1) the strategy takes
    # 11.3 ms and one pass over the array 9.9: 0.7 for rows read twice and the exchange, the rest is idle time of a
    # core.
    inside = _inside(block, shift, g, dtype)
    before, behind = g.exchanges()
    left, right = before(block), behind(block)
    if g.left > g.block:
        left = _overlay(left, prepend, start - g.left + g.before, g.axis)
    elif g.left:
        left = jnp.where(device == 0, pad_axis(prepend, g.axis, g.left - g.before, 0), left)
    if g.right and g.after:
        right = _overlay(right, append, start + g.block - g.along.rows, g.axis)
    return _with_edges(inside, left, block, right, shift, g, dtype)


def _inside(block: jax.Array, shift: int | jax.Array, g: Geometry, dtype: np.dtype) -> jax.Array | None:
    """Returns the differences inside a block, as bits, padded to the result's size; None if there are none."""
    lowest, highest = g.shifts
    inner = g.result_block - g.left - g.right
    if inner < 1 or highest + g.left + g.n > g.block or lowest + g.result_block < g.right:
        return None
    inside = element_types.as_bits(differences([block], shift + g.left, inner, g, dtype))
    return pad_axis(inside, g.axis, g.left, g.right)


def _with_edges(
    inside: jax.Array | None,
    left: jax.Array,
    block: jax.Array,
    right: jax.Array,
    shift: int | jax.Array,
    g: Geometry,
    dtype: np.dtype,
) -> jax.Array:
    """Returns the differences of the rows before a block, in it and behind it.

    The differences at the edges are updated in place. Up to order 4, XLA computes that in one pass over memory; a
    concatenation takes a pass for each order.
    """
    if inside is None:
        return differences([left, block, right], shift + g.left, g.result_block, g, dtype)
    lowest, highest = g.shifts
    # The edges need the block's rows up to `head` and from `tail` on, whatever the shift.
    head, tail = highest + g.left + g.n, lowest + g.result_block - g.right
    result = inside
    if g.left:
        parts = [left, rows(block, 0, head, g.axis)]
        edge = element_types.as_bits(differences(parts, shift - lowest, g.left, g, dtype))
        result = lax.dynamic_update_slice_in_dim(result, edge, 0, g.axis)
    if g.right:
        parts = [rows(block, tail, g.block - tail, g.axis), right]
        edge = element_types.as_bits(differences(parts, shift - lowest, g.right, g, dtype))
        result = lax.dynamic_update_slice_in_dim(result, edge, g.result_block - g.right, g.axis)
    return element_types.from_bits(result, dtype)


def _overlay(block: jax.Array, edge: jax.Array, start: jax.Array, axis: int) -> jax.Array:
    """Replaces rows of a block by those of ``edge``; ``start`` is the index in ``edge`` of the block's first row."""
    count = edge.shape[axis]
    if not count:
        return block
    index = start + lax.broadcasted_iota(start.dtype, (block.shape[axis],), 0)
    overlaid = jnp.take(edge, jnp.clip(index, 0, count - 1), axis=axis)
    index = lax.broadcast_in_dim(index, block.shape, (axis,))
    return jnp.where((index >= 0) & (index < count), overlaid, block)

"""The blocks of a difference: what each needs of its neighbours, and the differences of that.

All counts are rows along the axis of the difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels import element_types
from shardcall_server.kernels.blocks import index_type, pad_axis, ppermute, rows
from shardcall_server.kernels.kernel import Problem
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec, block_shape

MAX_UNROLLED = 16
"""The highest order whose steps are written out; above it they are a loop, so that compile time is bounded."""

_Index = TypeVar("_Index", int, jax.Array)


@dataclass(frozen=True)
class Geometry:
    """A difference as its blocks see it.

    Block d of the result needs result_block + n rows, from ``shift(d)`` on as block d of x counts them. Where the
    blocks of x and of the result are of one size the shift is the same for all; else it grows or falls with d.

    Attributes:
        axis: the axis of the difference.
        n: the order.
        axis_names: the mesh axes that split the axis.
        mesh: the mesh.
        devices: the devices D along the axis; 1 if the axis is not split.
        rows: rows of x.
        before: rows prepended.
        after: rows appended.
        block: rows B of one block of x, padding included.
        result_block: rows of one block of the result, padding included.
    """

    axis: int
    n: int
    axis_names: tuple[str, ...]
    mesh: MeshAxes
    devices: int
    rows: int
    before: int
    after: int
    block: int
    result_block: int

    @staticmethod
    def of(problem: Problem) -> Geometry:
        """The geometry of a call whose result is split as x is."""
        x, spec = cast(ArrayType, problem.operands[0]), cast(Spec, problem.in_specs[0])
        axis, n = cast(int, problem.parameters["axis"]), cast(int, problem.parameters["n"])
        before, after = (edge_rows(edge, axis) for edge in problem.operands[1:])
        return Geometry(
            axis=axis,
            n=n,
            axis_names=spec[axis],
            mesh=problem.mesh,
            devices=problem.mesh.size(spec[axis]),
            rows=x.shape[axis],
            before=before,
            after=after,
            block=block_shape(x.shape, spec, problem.mesh)[axis],
            result_block=block_shape(problem.results[0].shape, spec, problem.mesh)[axis],
        )

    def shift(self, device: _Index) -> _Index:
        """The first row of its block of x that a device needs; negative for its neighbour's."""
        return device * (self.result_block - self.block) - self.before

    @property
    def shifts(self) -> tuple[int, int]:
        """The lowest and the highest shift."""
        first, last = self.shift(0), self.shift(self.devices - 1)
        return min(first, last), max(first, last)

    @property
    def left(self) -> int:
        """Rows that some device needs of what lies before its block."""
        return max(0, -self.shifts[0])

    @property
    def right(self) -> int:
        """Rows that some device needs of what lies behind its block."""
        return max(0, self.shifts[1] + self.result_block + self.n - self.block)


def edge_rows(edge: ArrayType | None, axis: int) -> int:
    """Rows that an edge, prepended or appended, has along the axis; a scalar is one row."""
    if edge is None:
        return 0
    return edge.shape[axis] if edge.ndim else 1


def differences(
    parts: Sequence[jax.Array], start: int | jax.Array, count: int, g: Geometry, dtype: np.dtype
) -> jax.Array:
    """Differences of some parts, one after the other, in the element type of the result.

    Args:
        parts: [L₁, …], [L₂, …], …; at least one has a row.
        start: the first row that counts.
        count: how many differences; ``count + n`` rows count.
        g: of the call.
        dtype: of the result.
    """
    wide = [element_types.widen(part, dtype) for part in parts if part.shape[g.axis]]
    joined = jnp.concatenate(wide, g.axis) if len(wide) > 1 else wide[0]
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
    # The shape stays; what comes round from the start spoils one more row at the end in each step.
    def step(_: int, a: jax.Array) -> jax.Array:
        return element_types.subtract(jnp.roll(a, -1, g.axis), a, dtype)

    return rows(lax.fori_loop(0, g.n, step, array), 0, array.shape[g.axis] - g.n, g.axis)


def whole_block(block: jax.Array, prepend: jax.Array, append: jax.Array, g: Geometry, dtype: np.dtype) -> jax.Array:
    """The differences along an axis that is not split."""
    return _with_edges(_inside(block, g.shift(0), g, dtype), prepend, block, append, g.shift(0), g, dtype)


def halo_block(
    block: jax.Array, prepend: jax.Array, append: jax.Array, g: Geometry, dtype: np.dtype, *, blocking: bool
) -> jax.Array:
    """One device's block of the result: its neighbours' edge rows, and the differences of all.

    Args:
        block: [B, …], the device's block of x.
        prepend: [before, …] of type ``dtype``.
        append: [after, …] of type ``dtype``.
        g: of the call; ``left`` and ``right`` are at most B.
        dtype: of the result.
        blocking: whether a collective holds up what does not need it, as on CPU. The differences inside the block
            are then taken first: all devices wait for the last to come, and by then those that wait have done
            their work. Elsewhere the exchange runs beside them.

    Returns:
        [result_block, …].
    """
    block = element_types.convert(block, dtype)
    if g.devices == 1:
        return whole_block(block, prepend, append, g, dtype)
    device = lax.axis_index(g.axis_names)
    start = device.astype(index_type(g.devices * (g.block + 1))) * g.block
    if g.after:
        block = _append(block, append, start, g)
    lowest, highest = g.shifts
    shift = lowest if lowest == highest else g.shift(device)
    inside = _inside(block, shift, g, dtype)
    left, right = rows(block, g.block - g.left, g.left, g.axis), rows(block, 0, g.right, g.axis)
    if blocking and inside is not None:
        inside, left, right = lax.optimization_barrier((inside, left, right))
    if g.left:
        left = _permute(left, g, [(i, i + 1) for i in range(g.devices - 1)])
        left = jnp.where(device == 0, pad_axis(prepend, g.axis, g.left - g.before, 0), left)
    if g.right:
        right = _permute(right, g, [(i + 1, i) for i in range(g.devices - 1)])
        if g.after:
            right = _append(right, append, start + g.block, g)
    return _with_edges(inside, left, block, right, shift, g, dtype)


def _inside(block: jax.Array, shift: int | jax.Array, g: Geometry, dtype: np.dtype) -> jax.Array | None:
    """The differences that a block makes by itself, as bits, padded to the result's size; None if there are none."""
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
    """The differences of the rows before a block, in it and behind it.

    Those at the edges are written in place, into those inside. XLA makes one pass over memory of that up to order
    4; of a concatenation it makes one for each order.
    """
    if inside is None:
        return differences([left, block, right], shift + g.left, g.result_block, g, dtype)
    lowest, highest = g.shifts
    # The edges need the block's rows up to `head` and from `tail` on, wherever the shift lies.
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


def _append(block: jax.Array, append: jax.Array, start: jax.Array, g: Geometry) -> jax.Array:
    """Writes the appended rows, which follow x's last row, into its padding.

    Args:
        block: rows of padded x.
        append: [after, …].
        start: which row of x the block's first is.
        g: of the call.
    """
    index = start - g.rows + lax.broadcasted_iota(start.dtype, (block.shape[g.axis],), 0)
    appended = jnp.take(append, jnp.clip(index, 0, g.after - 1), axis=g.axis)
    index = lax.broadcast_in_dim(index, block.shape, (g.axis,))
    return jnp.where((index >= 0) & (index < g.after), appended, block)


def _permute(array: jax.Array, g: Geometry, pairs: list[tuple[int, int]]) -> jax.Array:
    received = ppermute(element_types.as_bits(array), g.axis_names, g.mesh, pairs)
    return element_types.from_bits(received, array.dtype)

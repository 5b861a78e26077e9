"""Rows that the blocks of an array split along an axis get of each other.

Rows are counted as the array's true ones are, 0 to R - 1; those before 0 and from R on are what a boundary makes
of them. Which device needs which is known before anything runs, so a program holds one collective-permute for each
distance between a block and one that needs rows of it, and no more rows travel than the widest of these needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels import element_types
from shardcall_server.kernels.blocks import index_type, pad_axis, ppermute, rows, zeros
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec, block_shape
from shardcall_server.kernels.routes import (
    Boundary,
    PermuteStep,
    RowRange,
    concatenation_of,
    permutes_of,
    ranges_between,
)

MAX_SELECTS = 4
"""The most rows that are put into a block's padding by a select each, which XLA fuses with what follows."""


@dataclass(frozen=True)
class ShardedAxis:
    """An axis of an array as its blocks see it.

    Attributes:
        axis: which.
        axis_names: the mesh axes that split it.
        mesh: the mesh.
        rows: rows R of the array, without padding.
        block: rows B of one block, padding included.
    """

    axis: int
    axis_names: tuple[str, ...]
    mesh: MeshAxes
    rows: int
    block: int

    @staticmethod
    def of(array: ArrayType, spec: Spec, axis: int, mesh: MeshAxes) -> ShardedAxis:
        """The axis of an array split as a spec tells."""
        block = block_shape(array.shape, spec, mesh)[axis]
        return ShardedAxis(axis, spec[axis], mesh, array.shape[axis], block)

    @property
    def devices(self) -> int:
        """The blocks D along the axis; 1 if it is not split."""
        return self.mesh.size(self.axis_names)

    @property
    def is_even(self) -> bool:
        """Whether no block holds padding."""
        return self.block * self.devices == self.rows

    def held(self, device: int) -> int:
        """How many true rows a block holds."""
        return min(max(self.rows - device * self.block, 0), self.block)

    def index(self) -> jax.Array | int:
        """Which block the running device has, counted along the axis."""
        return lax.axis_index(self.axis_names) if self.devices > 1 else 0

    def pick(self, values: Sequence[int]) -> jax.Array | int:
        """The running device's one of D values; a plain integer where all are the same."""
        if len(set(values)) == 1:
            return values[0]
        return jnp.asarray(np.array(values, index_type(max(map(abs, values)) + 1)))[self.index()]


@dataclass(frozen=True)
class Exchange:
    """An exchange, planned: what every device sends, and how it puts together what it gets.

    Attributes:
        along: the axis.
        count: rows that a device ends up with.
        hops: what travels, by growing distance.
        runs: [D] what each device needs; what no run covers is zero, or of no account.
        order: the order in which the hops' rows, put one after the other, are the answer; None if there is none.
    """

    along: ShardedAxis
    count: int
    permutes: tuple[PermuteStep, ...]
    ranges: tuple[tuple[RowRange, ...], ...]
    concatenation: tuple[int, ...] | None

    @staticmethod
    def of(along: ShardedAxis, windows: Sequence[tuple[int, int]], boundary: Boundary) -> Exchange:
        """Plans an exchange.

        Args:
            along: the axis.
            windows: [D] the rows that each device needs, from and to; empty where it needs none.
            boundary: what the rows outside the array are.
        """
        count = max(max(0, stop - start) for start, stop in windows)
        ranges = tuple(tuple(ranges_between(along.rows, along.block, start, stop, boundary)) for start, stop in windows)
        permutes = permutes_of(ranges, along.block)
        return Exchange(along, count, permutes, ranges, concatenation_of(permutes, ranges, windows, boundary))

    @property
    def is_direct(self) -> bool:
        """Whether what one hop brings is the answer as it comes."""
        return self.concatenation is not None and len(self.concatenation) == 1

    @property
    def rows_moved(self) -> int:
        """The most rows that a device sends to others."""
        return sum(permute.length for permute in self.permutes if permute.distance)

    def __call__(self, block: jax.Array) -> jax.Array:
        """The rows that the running device needs, given its block ``[B, …]``: ``[count, …]``."""
        along, axis = self.along, self.along.axis
        sent = [rows(block, along.pick(permute.starts), permute.length, axis) for permute in self.permutes]
        parts = [_travel(part, permute, along) for part, permute in zip(sent, self.permutes, strict=True)]
        if self.concatenation is None:
            parts.append(zeros((*block.shape[:axis], 1, *block.shape[axis + 1 :]), block.dtype))
        else:
            parts = [parts[i] for i in self.concatenation]
        if not parts:
            return zeros((*block.shape[:axis], self.count, *block.shape[axis + 1 :]), block.dtype)
        if self.is_direct:
            return parts[0]
        joined = jnp.concatenate([element_types.as_bits(part) for part in parts], axis)
        if self.concatenation is None:
            joined = jnp.take(joined, self._received_indices(), axis=axis, mode="clip")
        return element_types.from_bits(joined, block.dtype)

    def _received_indices(self) -> jax.Array:
        # [count]: where each row is among all received, one hop after the other; the row behind them is zero.
        received = sum(permute.length for permute in self.permutes)
        kind = index_type(max(received, self.count) + 1)
        slot, index = jnp.arange(self.count, dtype=kind), jnp.full(self.count, received, kind)
        segments = [
            [self._segment(row_range, target) for row_range in ranges] for target, ranges in enumerate(self.ranges)
        ]
        for of_devices in zip_longest(*segments, fillvalue=(0, 0, 0, 0)):
            start, stop, first, step = (self.along.pick(values) for values in zip(*of_devices, strict=True))
            index = jnp.where((slot >= start) & (slot < stop), first + step * (slot - start), index).astype(kind)
        return index

    def _segment(self, row_range: RowRange, target: int) -> tuple[int, int, int, int]:
        # A run's slots, from and to; the place of its first row among all received, and the step to the next.
        distance = (target - row_range.source) % self.along.devices
        offset = sum(permute.length for permute in self.permutes if permute.distance < distance)
        (start,) = (permute.starts[row_range.source] for permute in self.permutes if permute.distance == distance)
        return row_range.slot, row_range.slot + row_range.length, offset + row_range.row - start, row_range.step


def rows_before(along: ShardedAxis, count: int, boundary: Boundary) -> Exchange:
    """The exchange of the ``count`` rows before each block."""
    starts = [device * along.block for device in range(along.devices)]
    return Exchange.of(along, [(s - count, s) if s < along.rows else (0, 0) for s in starts], boundary)


def rows_after(along: ShardedAxis, count: int, boundary: Boundary) -> Exchange:
    """The exchange of the ``count`` rows after the last true row of each block that has one."""
    ends = [device * along.block + along.held(device) for device in range(along.devices)]
    windows = [(end, end + count) if along.held(device) else (0, 0) for device, end in enumerate(ends)]
    return Exchange.of(along, windows, boundary)


def continued(
    block: jax.Array, after: jax.Array, along: ShardedAxis, boundary: Boundary
) -> tuple[jax.Array, jax.Array]:
    """Makes a block and the rows after it one run of rows, with no padding between them.

    Args:
        block: [B, …].
        after: [count, …] of `rows_after`.
        along: the axis.
        boundary: that of ``after``.

    Returns:
        The block with its padding filled, as far as ``after`` reaches, and the count rows behind it.
    """
    filled = fill(block, along, boundary)
    return written(filled, after, along) if boundary == "periodic" else filled, behind(after, along)


def fill(block: jax.Array, along: ShardedAxis, boundary: Boundary) -> jax.Array:
    """Fills a block's padding as far as that takes no row of another block: with zeros, or its last row."""
    if along.is_even or boundary not in ("zero", "edge"):
        return block
    held = _held(along)
    row = lax.broadcasted_iota(index_type(along.block + 1), block.shape, along.axis)
    last = rows(block, held - 1, 1, along.axis) if boundary == "edge" else jnp.zeros((), block.dtype)
    return jnp.where(row < held, block, last)  # a select: padding may hold NaN


def behind(after: jax.Array, along: ShardedAxis) -> jax.Array:
    """The rows behind a block's last, padding or not, of those after its last true one: ``[count, …]``."""
    count = after.shape[along.axis]
    if along.is_even or not count:
        return after
    start = jnp.minimum(along.block - _held(along), count)
    return rows(pad_axis(after, along.axis, 0, count), start, count, along.axis)


def written(block: jax.Array, after: jax.Array, along: ShardedAxis) -> jax.Array:
    """The block with ``after``, the rows after its last true one, in its padding, as far as there is any."""
    count = after.shape[along.axis]
    if along.is_even or not count:
        return block
    held = _held(along)
    if count <= MAX_SELECTS:
        row = lax.broadcasted_iota(index_type(along.block + 1), block.shape, along.axis)
        for i in range(count):
            block = jnp.where(row == held + i, rows(after, i, 1, along.axis), block)
        return block
    longer = lax.dynamic_update_slice_in_dim(pad_axis(block, along.axis, 0, count), after, held, along.axis)
    return rows(longer, 0, along.block, along.axis)


def _held(along: ShardedAxis) -> jax.Array | int:
    # Of a block that holds nothing all rows are taken for true: they are of no account.
    return along.pick([along.held(device) or along.block for device in range(along.devices)])


def _travel(part: jax.Array, permute: PermuteStep, along: ShardedAxis) -> jax.Array:
    if not permute.distance:
        return part
    received = ppermute(element_types.as_bits(part), along.axis_names, along.mesh, permute.pairs)
    return element_types.from_bits(received, part.dtype)

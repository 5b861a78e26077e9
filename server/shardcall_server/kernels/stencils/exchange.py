"""Exchange of rows between the blocks of an array that is sharded along an axis.

The array's valid rows are numbered 0 to R - 1; the boundary defines the rows before 0 and from R on. The rows that each
device needs are known at compile time, so a program has one collective-permute for each distance between a block and
one that needs rows of it, and moves no more rows than the widest of these needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, block_shape
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.blocks import index_type, pad_axis, ppermute, rows, zeros
from shardcall_server.kernels.stencils.routes import (
    Boundary,
    PermuteStep,
    RowRange,
    concatenation_of,
    permutes_of,
    ranges_between,
)

MAX_SELECTS = 4
"""The maximum number of rows that are written into padding by a select each, which XLA fuses with later operations."""


@dataclass(frozen=True)
class ShardedAxis:
    """An axis of an array, divided into blocks.

    Attributes:
        axis: its index.
        axis_names: the mesh axes that shard it.
        mesh: all axes of the mesh.
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
        """Returns an axis of an array with this spec."""
        block = block_shape(array.shape, spec, mesh)[axis]
        return ShardedAxis(axis, spec[axis], mesh, array.shape[axis], block)

    @property
    def devices(self) -> int:
        """The blocks D along the axis; 1 if it is not sharded."""
        return self.mesh.size(self.axis_names)

    @property
    def is_even(self) -> bool:
        """True if no block holds padding."""
        return self.block * self.devices == self.rows

    def held(self, device: int) -> int:
        """Returns the number of valid rows of a block."""
        return min(max(self.rows - device * self.block, 0), self.block)

    def index(self) -> jax.Array | int:
        """Returns the index of the running device's block along the axis."""
        return lax.axis_index(self.axis_names) if self.devices > 1 else 0

    def pick(self, values: Sequence[int]) -> jax.Array | int:
        """Returns the value of the running device from D values; a plain integer if all are equal."""
        if len(set(values)) == 1:
            return values[0]
        return jnp.asarray(np.array(values, index_type(max(map(abs, values)) + 1)))[self.index()]


@dataclass(frozen=True)
class Exchange:
    """A planned exchange: the rows that every device sends, and the assembly of the rows that it receives.

    Attributes:
        along: the sharded axis.
        count: the number of rows that each device receives.
        permutes: the permute steps, by increasing distance.
        ranges: [D] the row ranges that each device needs; rows outside them are zero or unspecified.
        concatenation: the permutation of the permute steps whose concatenated rows are the result; None if there is
            none.
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
            windows: [D] start and stop of the rows that each device needs; empty where it needs none.
            boundary: the values of the rows outside the array.
        """
        count = max(max(0, stop - start) for start, stop in windows)
        ranges = tuple(tuple(ranges_between(along.rows, along.block, start, stop, boundary)) for start, stop in windows)
        permutes = permutes_of(ranges, along.block)
        return Exchange(along, count, permutes, ranges, concatenation_of(permutes, ranges, windows, boundary))

    @property
    def is_direct(self) -> bool:
        """True if the rows of a single permute step are the result."""
        return self.concatenation is not None and len(self.concatenation) == 1

    def __call__(self, block: jax.Array) -> jax.Array:
        """Returns the rows ``[count, …]`` that the running device needs, from its block ``[B, …]``."""
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
        # [count] the index of each row among the concatenated rows of all steps; the row after them is zero.
        received = sum(permute.length for permute in self.permutes)
        dtype = index_type(max(received, self.count) + 1)
        slot, index = jnp.arange(self.count, dtype=dtype), jnp.full(self.count, received, dtype)
        segments = [
            [self._segment(row_range, target) for row_range in ranges] for target, ranges in enumerate(self.ranges)
        ]
        for of_devices in zip_longest(*segments, fillvalue=(0, 0, 0, 0)):
            start, stop, first, step = (self.along.pick(values) for values in zip(*of_devices, strict=True))
            index = jnp.where((slot >= start) & (slot < stop), first + step * (slot - start), index).astype(dtype)
        return index

    def _segment(self, row_range: RowRange, target: int) -> tuple[int, int, int, int]:
        # Start and stop of a row range in the result, the index of its first row among those received, and its step.
        distance = (target - row_range.source) % self.along.devices
        offset = sum(permute.length for permute in self.permutes if permute.distance < distance)
        (start,) = (permute.starts[row_range.source] for permute in self.permutes if permute.distance == distance)
        return row_range.slot, row_range.slot + row_range.length, offset + row_range.row - start, row_range.step


def rows_before(along: ShardedAxis, count: int, boundary: Boundary) -> Exchange:
    """Returns the exchange of the ``count`` rows before each block."""
    starts = [device * along.block for device in range(along.devices)]
    return Exchange.of(along, [(s - count, s) if s < along.rows else (0, 0) for s in starts], boundary)


def rows_after(along: ShardedAxis, count: int, boundary: Boundary) -> Exchange:
    """Returns the exchange of the ``count`` rows after the last valid row of each block that has one."""
    ends = [device * along.block + along.held(device) for device in range(along.devices)]
    windows = [(end, end + count) if along.held(device) else (0, 0) for device, end in enumerate(ends)]
    return Exchange.of(along, windows, boundary)


def neighboring_rows(along: ShardedAxis, left: int, right: int) -> tuple[Exchange, Exchange]:
    """Returns the exchanges of the rows before each block and of those after it, padding included."""
    starts = [device * along.block for device in range(along.devices)]
    before = Exchange.of(along, [(start - left, start) for start in starts], "none")
    behind = [(start + along.block, start + along.block + right) for start in starts]
    return before, Exchange.of(along, behind, "none")


def fill(block: jax.Array, along: ShardedAxis, boundary: Boundary) -> jax.Array:
    """Fills a block's padding with zeros or its last row, if the boundary needs no row of another block."""
    if along.is_even or boundary not in ("zero", "edge"):
        return block
    held = _held(along)
    row = lax.broadcasted_iota(index_type(along.block + 1), block.shape, along.axis)
    last = rows(block, held - 1, 1, along.axis) if boundary == "edge" else jnp.zeros((), block.dtype)
    return jnp.where(row < held, block, last)  # a select, since padding may hold NaN


def behind(after: jax.Array, along: ShardedAxis) -> jax.Array:
    """Returns the rows after a block and its padding, ``[count, …]``, from the rows after its last valid one."""
    count = after.shape[along.axis]
    if along.is_even or not count:
        return after
    start = jnp.minimum(along.block - _held(along), count)
    return rows(pad_axis(after, along.axis, 0, count), start, count, along.axis)


def written(block: jax.Array, after: jax.Array, along: ShardedAxis) -> jax.Array:
    """Writes ``after``, the rows after the block's last valid one, into the block's padding, if it has any."""
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
    # All rows of an empty block count as valid: their values are never used.
    return along.pick([along.held(device) or along.block for device in range(along.devices)])


def _travel(part: jax.Array, permute: PermuteStep, along: ShardedAxis) -> jax.Array:
    if not permute.distance:
        return part
    received = ppermute(element_types.as_bits(part), along.axis_names, along.mesh, permute.pairs)
    return element_types.from_bits(received, part.dtype)

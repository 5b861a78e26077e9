"""Slices along a sharded axis, whose starts are known only when the program runs.

Each device sends the others the rows that their blocks of the result lack. A slice that is short or far away is a sum
instead, to which each device contributes the elements that it has, and zeros elsewhere. Arrays are integers: see
`bits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_server.kernels.array_functions.moved_rows import MovedRows
from shardcall_server.kernels.core.blocks import index_type, pad_axis, ppermute, rows
from shardcall_server.kernels.stencils.exchange import ShardedAxis


@overload
def lowest_index(start: int, size: int, count: int, step: int) -> int: ...


@overload
def lowest_index(start: jax.Array | int, size: int, count: int, step: int) -> jax.Array | int: ...


def lowest_index(start: jax.Array | int, size: int, count: int, step: int) -> jax.Array | int:
    """Returns the lowest index of a slice's elements, moved as little as needed to keep the slice inside the axis."""
    reach = (count - 1) * abs(step)
    if isinstance(start, int):
        return min(max(start - (reach if step < 0 else 0), 0), size - reach - 1)
    lowest = start.astype(np.int64) - (reach if step < 0 else 0)
    return jnp.clip(lowest, 0, size - reach - 1).astype(index_type(2 * size))


@dataclass(frozen=True)
class SlicedAxis:
    """A slice along an axis.

    Attributes:
        along: the axis of the array.
        count: the number of elements.
        step: the step between them; negative ones go towards the first.
        is_sharded: True if the result is sharded along the axis as the array, False for one that every device has.
        start: the index of the first element, where it is known when the program is compiled.
    """

    along: ShardedAxis
    count: int
    step: int
    is_sharded: bool
    start: int | None = None

    @property
    def reach(self) -> int:
        """The distance between the first and the last element."""
        return max(self.count - 1, 0) * abs(self.step)

    @property
    def block(self) -> int:
        """Rows of one block of the result, padding included."""
        return -(-self.count // self.along.devices) if self.is_sharded else self.count

    @property
    def is_sum(self) -> bool:
        """True if the slice is computed as a sum over the devices."""
        received = self._moved_rows().received_rows + (self.along.block if self.step < 0 else 0)
        # An element of a sum is written, sent and read.
        return not self.is_sharded or received > 2 * self.count

    @property
    def is_cheap(self) -> bool:
        """True if the devices send margins of their blocks, or less than an all-to-all would."""
        if not self.count or self.along.devices == 1:
            return True
        return self.is_sum or self._moved_rows().has_margins

    def __call__(self, block: jax.Array, start: jax.Array | int) -> jax.Array:
        """Returns the running device's block of the slice, ``[block, …]``, from its block of integers."""
        axis = self.along.axis
        if not self.count:
            return lax.slice_in_dim(block, 0, 0, axis=axis)
        lowest = lowest_index(start, self.along.rows, self.count, self.step)
        if self.along.devices == 1:
            return _strided(rows(block, lowest, self.reach + 1, axis), self.step, axis)
        if self.is_sum:
            return self._summed(block, lowest)
        moved, highest = self._moved_rows(), self.along.rows - self.reach - 1
        if self.step < 0:
            last = self.along.devices - 1
            pairs = [(device, last - device) for device in range(last + 1)]
            block = ppermute(lax.rev(block, [axis]), self.along.axis_names, self.along.mesh, pairs)
            lowest = highest - lowest
        return _strided(moved(block, lowest if self.start is None else 0), abs(self.step), axis)

    def _moved_rows(self) -> MovedRows:
        """Returns the rows between the first and the last element of each device's block of the slice.

        For negative steps they are those of the reversed array, which its padding precedes. They begin where the slice
        does, if that is known, and at a shift of 0 otherwise.
        """
        step, highest = abs(self.step), self.along.rows - self.reach - 1
        if self.start is not None:
            lowest = lowest_index(self.start, self.along.rows, self.count, self.step)
            shift, highest = highest - lowest if self.step < 0 else lowest, 0
        else:
            shift = 0
        before = self.along.block * self.along.devices - self.along.rows if self.step < 0 else 0
        firsts = [before + shift + self.block * device * step for device in range(self.along.devices)]
        last = (self.count - 1) // self.block
        # Devices without an element of the slice take rows at the same distance from their blocks as the last with one.
        firsts[last + 1 :] = [firsts[last] + (d - last) * self.along.block for d in range(last + 1, len(firsts))]
        return MovedRows.of(self.along, firsts, (self.block - 1) * step + 1, highest)

    def _summed(self, block: jax.Array, lowest: jax.Array | int) -> jax.Array:
        axis, along = self.along.axis, self.along
        # If there are few rows, every device gets all of them: scattering would send more, a block of padding to each.
        is_scattered = self.is_sharded and self.block * along.devices < 2 * self.count
        padded = self.block * along.devices if is_scattered else self.count
        slot = jnp.arange(padded, dtype=np.int64)
        if self.step < 0:
            slot = self.count - 1 - slot
        row = lowest + slot * abs(self.step) - jnp.asarray(along.index(), np.int64) * along.block
        is_here = (row >= 0) & (row < along.block)
        taken = jnp.take(block, jnp.clip(row, 0, along.block - 1), axis=axis)
        local = jnp.where(lax.broadcast_in_dim(is_here, taken.shape, (axis,)), taken, jnp.zeros((), taken.dtype))
        result = sum_of_devices(local, along, is_scattered=is_scattered)
        if is_scattered or not self.is_sharded:
            return result
        return rows(result, jnp.minimum(along.index(), self.count - 1), 1, axis)


def sum_of_devices(local: jax.Array, along: ShardedAxis, *, is_scattered: bool) -> jax.Array:
    """Returns the sum of all devices' integers, or the running device's block of it."""
    if local.dtype == jnp.bool_:
        return sum_of_devices(local.astype(jnp.uint8), along, is_scattered=is_scattered) != 0
    if is_scattered:
        scattered: jax.Array = lax.psum_scatter(local, along.axis_names, scatter_dimension=along.axis, tiled=True)
        return scattered
    summed: jax.Array = lax.psum(local, along.axis_names)
    return summed


@dataclass(frozen=True)
class AssignedAxis:
    """An axis, some elements of which get values.

    Attributes:
        axis: the axis of the array and of the values.
        size: the number of its elements.
        count: the number of those that get values.
        step: the step between these; negative ones go towards the first.
        along: the axis of the values where it is sharded as the array's; None where every device has all values.
    """

    axis: int
    size: int
    count: int
    step: int
    along: ShardedAxis | None

    def lowest(self, start: jax.Array | int) -> jax.Array | int:
        """Returns the lowest index of an element that gets a value."""
        return lowest_index(start, self.size, self.count, self.step)

    def is_assigned(self, shape: Sequence[int], first: int | jax.Array, lowest: jax.Array | int) -> jax.Array:
        """Returns which elements of a block get values: [1, …, rows, …, 1].

        Args:
            shape: the shape of the block.
            first: the index of its first element.
            lowest: the lowest index of an element that gets a value.
        """
        row = self._distances(shape[self.axis], first, lowest)
        unsigned = np.dtype(f"uint{8 * row.dtype.itemsize}")  # so that negative ones are beyond the end
        is_assigned = row.astype(unsigned) <= unsigned.type((self.count - 1) * abs(self.step))
        if abs(self.step) > 1:
            is_assigned &= row % abs(self.step) == 0
        assigned: jax.Array = is_assigned.reshape([-1 if i == self.axis else 1 for i in range(len(shape))])
        return assigned

    def values_of(self, values: jax.Array, length: int, first: int | jax.Array, lowest: jax.Array | int) -> jax.Array:
        """Returns the values of a block's elements, ``[length, …]``; anything for elements that get none."""
        if self.along is not None and self.along.devices > 1:
            highest = self.size - self.count
            firsts = [length * device - highest for device in range(self.along.devices)]
            return MovedRows.of(self.along, firsts, length, highest)(values, highest - lowest)
        if self.step == 1 and isinstance(first, int) and isinstance(lowest, int):
            before = lowest - first
            return pad_axis(values, self.axis, before, length - self.count - before)
        if self.step == 1:
            start = jnp.clip(first - lowest, -length, self.count) + length
            return rows(pad_axis(values, self.axis, length, length), start, length, self.axis)
        slot = self._distances(length, first, lowest) // abs(self.step)
        slot = self.count - 1 - slot if self.step < 0 else slot
        return jnp.take(values, jnp.clip(slot, 0, self.count - 1), axis=self.axis)

    def _distances(self, length: int, first: int | jax.Array, lowest: jax.Array | int) -> jax.Array:
        return lax.iota(index_type(2 * self.size), length) + (first - lowest)


def _strided(array: jax.Array, step: int, axis: int) -> jax.Array:
    """Returns each ``step``-th row; from the last one on for negative steps."""
    count = array.shape[axis]
    strided = lax.slice_in_dim(array, 0, count, min(abs(step), max(count, 1)), axis)
    return lax.rev(strided, [axis]) if step < 0 else strided

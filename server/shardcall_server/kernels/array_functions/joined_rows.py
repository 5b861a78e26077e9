"""Arrays joined along an axis that is sharded, at positions that are known when the program is compiled.

Arrays are integers: see `bits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from shardcall_server.kernels.array_functions.moved_rows import MovedRows
from shardcall_server.kernels.array_functions.sliced_axes import SlicedAxis
from shardcall_server.kernels.core.blocks import index_type, pad_axis, rows
from shardcall_server.kernels.stencils.exchange import ShardedAxis


@dataclass(frozen=True)
class JoinedPart:
    """An array that is a part of the joined one.

    Attributes:
        of: the axis of the array.
        first: the index of its first row in the joined array.
        joined: the axis of the joined array.
    """

    of: ShardedAxis
    first: int
    joined: ShardedAxis

    def _moved_rows(self) -> MovedRows:
        along, block = self.of, self.joined.block
        firsts = [device * block - self.first for device in range(along.devices)]
        needs = [i for i, first in enumerate(firsts) if -block < first < along.rows]
        for device in range(along.devices):
            # Devices that need no row take rows at the same distance from their blocks as the nearest device that does.
            near = min(needs, key=lambda i: abs(i - device))
            firsts[device] = firsts[near] + (device - near) * along.block
        return MovedRows.of(along, firsts, block, 0)

    @property
    def is_short(self) -> bool:
        """True if every device gets all rows."""
        return 2 * self.of.rows <= self.joined.block or self.of.devices == 1

    @property
    def is_cheap(self) -> bool:
        """True if the devices send margins of their blocks, or few rows."""
        return not self.of.rows or self.is_short or self._moved_rows().has_margins

    def __call__(self, block: jax.Array) -> jax.Array:
        """Returns the running device's block of the joined array, with the rows of this array at their positions."""
        if not self.is_short:
            return self._moved_rows()(block)
        complete = SlicedAxis(self.of, self.of.rows, 1, is_sharded=False)(block, jnp.zeros((), jnp.int32))
        return self.of_complete(complete)

    def of_complete(self, complete: jax.Array) -> jax.Array:
        """Returns the same rows from an array that is complete on every device."""
        length, axis = self.joined.block, self.joined.axis
        dtype = index_type(2 * self.joined.block * self.joined.devices + 1)
        start = jnp.asarray(self.joined.index(), dtype) * length - self.first
        start = jnp.clip(start, -length, self.of.rows) + length
        return rows(pad_axis(complete, axis, length, length), start, length, axis)


def joined(parts: Sequence[tuple[JoinedPart, jax.Array]]) -> jax.Array:
    """Returns the running device's block of the joined array, from the rows of each part.

    Args:
        parts: the parts that have rows, by position, and what calling them returned.
    """
    (last, result) = parts[-1]
    along = last.joined
    shape = [along.block if i == along.axis else 1 for i in range(max(array.ndim for _, array in parts))]
    dtype = index_type(2 * along.block * along.devices + 1)
    row = (jnp.arange(along.block, dtype=dtype) + jnp.asarray(along.index(), dtype) * along.block).reshape(shape)
    for part, array in reversed(parts[:-1]):
        result = jnp.where(row < part.first + part.of.rows, array, result)
    return result

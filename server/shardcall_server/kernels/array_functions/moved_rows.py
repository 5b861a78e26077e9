"""Exchange of rows whose first index is known only when the program runs.

Every device needs the same number of rows, from ``firsts[d] + shift`` on. ``firsts`` are known when the program is
compiled; ``shift``, from 0 to a known maximum, is the same on all devices. Arrays are integers: see `bits`. The rows
that a device may need at any shift are a known interval. If it is long, the shifts are divided into intervals, each
with a branch of the program, and all devices take the same branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax

from shardcall_server.kernels.core.blocks import index_type, ppermute, rows
from shardcall_server.kernels.core.differentiation import is_differentiated
from shardcall_server.kernels.stencils.exchange import ShardedAxis, neighboring_rows

MAX_BRANCHES = 8
"""The maximum number of intervals of shifts: each is a branch to compile."""


@dataclass(frozen=True)
class MovedRows:
    """The rows that the devices need.

    Attributes:
        along: the sharded axis; rows of its padding count as rows.
        firsts: [D] the first row that each device needs at shift 0.
        count: the number of rows that each device needs.
        highest: the highest shift.
    """

    along: ShardedAxis
    firsts: tuple[int, ...]
    count: int
    highest: int

    @staticmethod
    def of(along: ShardedAxis, firsts: Sequence[int], count: int, highest: int) -> MovedRows:
        """Returns the rows of an axis, including its padding, whose values are read but never used."""
        return MovedRows(replace(along, rows=along.block * along.devices), tuple(firsts), count, highest)

    @property
    def margins(self) -> tuple[int, int]:
        """The maximum numbers of rows that a device needs from before its block and from after it."""
        offsets = [first - device * self.along.block for device, first in enumerate(self.firsts)]
        return max(0, -min(offsets)), max(0, max(offsets) + self.highest + self.count - self.along.block)

    @property
    def has_margins(self) -> bool:
        """True if the rows are the block and margins that are no longer than it."""
        return sum(self.margins) <= self.along.block

    @property
    def branch_rows(self) -> int:
        """The number of shifts of one branch."""
        min_rows = max(16, self.count // 4)
        return max(min_rows, -(-(self.highest + 1) // MAX_BRANCHES))

    @property
    def received_rows(self) -> int:
        """The maximum number of rows that a device receives."""
        return sum(self.margins) if self.has_margins else self.count + min(self.branch_rows, self.highest)

    def __call__(self, block: jax.Array, shift: jax.Array | int = 0) -> jax.Array:
        """Returns the rows ``[count, …]`` that the running device needs, from its block ``[B, …]``."""
        if not isinstance(shift, int):
            shift = jnp.asarray(shift, index_type(self.along.rows + self.highest + self.count))
        if self.has_margins:
            return self._from_margins(block, shift)
        if self.highest < self.branch_rows:
            return self._from_windows(0, self.highest, block, shift)
        starts = range(0, self.highest + 1, self.branch_rows)
        branches = [self._branch(start, min(start + self.branch_rows - 1, self.highest)) for start in starts]
        chosen: jax.Array = lax.switch(shift // self.branch_rows, branches, block, shift)
        return chosen

    def _branch(self, lowest: int, highest: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
        return lambda block, shift: self._from_windows(lowest, highest, block, shift)

    def _from_windows(self, lowest: int, highest: int, block: jax.Array, shift: jax.Array | int) -> jax.Array:
        """Returns the rows, for shifts from ``lowest`` to ``highest``: a part of consecutive blocks."""
        axis, size, length = self.along.axis, self.along.block, self.count + highest - lowest
        starts = [first + lowest for first in self.firsts]
        sources = [start // size for start in starts]
        max_distance = max((start + length - 1) // size - source for start, source in zip(starts, sources, strict=True))
        # The needed rows are at the end of the first block, and at the start of the blocks after it.
        unused = min(start % size for start in starts)
        parts = [self._received(rows(block, unused, size - unused, axis), sources)]
        for k in range(1, max_distance + 1):
            needed = max(start + length - (source + k) * size for start, source in zip(starts, sources, strict=True))
            part = rows(block, 0, min(size, needed), axis)
            parts.append(self._received(part, [source + k for source in sources]))
        offset = self.along.pick([start % size - unused - lowest for start in starts])
        return rows(_joined(parts, axis), shift + offset, self.count, axis)

    def _received(self, part: jax.Array, sources: Sequence[int]) -> jax.Array:
        """Returns the part of each device's source; zeros where there is no such device."""
        rounds: list[list[tuple[int, int]]] = []
        for pair in ((source, target) for target, source in enumerate(sources) if 0 <= source < self.along.devices):
            free = next((pairs for pairs in rounds if all(pair[0] != source for source, _ in pairs)), None)
            if free is None:
                rounds.append([pair])
            else:
                free.append(pair)
        received = [ppermute(part, self.along.axis_names, self.along.mesh, pairs) for pairs in rounds]
        # A device that receives nothing in a round has zeros.
        joined = jnp.add if is_differentiated() else jnp.bitwise_or
        return reduce(joined, received) if received else jnp.zeros_like(part)

    def _from_margins(self, block: jax.Array, shift: jax.Array | int) -> jax.Array:
        """Returns the rows; those that are in the block at every shift are read from it alone, in one pass."""
        axis, size, (left, right) = self.along.axis, self.along.block, self.margins
        before, behind = (exchange(block) for exchange in neighboring_rows(self.along, left, right))
        offsets = [first - device * size for device, first in enumerate(self.firsts)]
        # Relative to the block: the first row that is needed, and its minimum and maximum over all shifts.
        first, min_first, max_first = shift + self.along.pick(offsets), min(offsets), max(offsets) + self.highest
        head, tail = max(0, -min_first), min(self.count, size - max_first)
        if tail <= head:
            return rows(_joined([before, block, behind], axis), first + left, self.count, axis)
        parts = [rows(block, first + head, tail - head, axis)]
        if head:
            near = _joined([before, rows(block, 0, max(0, head + max_first), axis)], axis)
            parts.insert(0, rows(near, first + left, head, axis))
        if tail < self.count:
            start = min_first + tail
            near = _joined([rows(block, start, size - start, axis), behind], axis)
            parts.append(rows(near, first + tail - start, self.count - tail, axis))
        return _joined(parts, axis)


def _joined(parts: Sequence[jax.Array], axis: int) -> jax.Array:
    present = [part for part in parts if part.shape[axis]]
    return jnp.concatenate(present, axis) if len(present) > 1 else present[0]

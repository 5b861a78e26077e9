"""The blocks of a sharded array and their devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shardcall_core.types.errors import ShardingError
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.specs import PartitionSpec, axis_names

_MAX_NAMED = 8


@dataclass(frozen=True)
class BlockGrid:
    """An array cut into blocks over a mesh, in JAX's order of devices.

    Attributes:
        shape: the array's shape, without padding.
        counts: the number of blocks along each axis.
        holders: the devices that hold each block, by block index; in the mesh's row-major order.
    """

    shape: tuple[int, ...]
    counts: tuple[int, ...]
    holders: Mapping[tuple[int, ...], tuple[int, ...]]

    def span(self, axis: int, index: int) -> tuple[int, int]:
        """Returns the [begin, end) of block ``index`` along an axis, without padding."""
        size = self.shape[axis]
        width = math.ceil(size / self.counts[axis])
        return min(index * width, size), min((index + 1) * width, size)

    def label(self, axis: int, index: int) -> str:
        """Returns `span` as NumPy writes a slice: ``0:2``."""
        return "{}:{}".format(*self.span(axis, index))


def block_grid(shape: tuple[int, ...], spec: PartitionSpec, mesh: Mesh) -> BlockGrid:
    """Returns the blocks of an array.

    Block ``b`` of axis ``i`` is held by the devices whose coordinates along the axes of ``spec[i]``, read
    outermost first, are ``b`` in row-major order; mesh axes that the spec does not name replicate.

    Args:
        shape: [rank] the array's shape; sizes need not divide.
        spec: at most as many entries as the array has axes.
        mesh: the mesh; without ``device_ids`` its devices are 0, 1, ….

    Raises:
        ShardingError: if the spec is longer than the rank or names an axis that the mesh does not have.
    """
    if len(spec) > len(shape):
        raise ShardingError(
            f"{spec} has {len(spec)} entries and the array has {len(shape)} axes; leave out the rest",
            reason="SPEC_TOO_LONG",
            field="spec",
        )
    entries = [axis_names(entry) for entry in spec] + [()] * (len(shape) - len(spec))
    sizes = mesh.shape
    for name in itertools.chain.from_iterable(entries):
        if name not in sizes:
            raise ShardingError(
                f"{spec} names mesh axis {name!r}, which {mesh} does not have",
                reason="UNKNOWN_MESH_AXIS",
                field="spec",
            )
    position = {name: i for i, name in enumerate(mesh.axis_names)}
    devices = np.asarray(mesh.device_ids or range(mesh.size)).reshape(tuple(sizes.values()))
    holders: dict[tuple[int, ...], list[int]] = {}
    for coordinates, device in np.ndenumerate(devices):
        block = tuple(_row_major([(coordinates[position[n]], sizes[n]) for n in names]) for names in entries)
        holders.setdefault(block, []).append(int(device))
    return BlockGrid(
        shape=shape,
        counts=tuple(math.prod(sizes[name] for name in names) for names in entries),
        holders={block: tuple(holders[block]) for block in sorted(holders)},
    )


def device_label(ids: tuple[int, ...]) -> str:
    """Returns the ids of the devices that hold a block, shortened if there are many."""
    if len(ids) <= _MAX_NAMED:
        return ",".join(map(str, ids))
    return f"{ids[0]},{ids[1]},…,{ids[-1]} ({len(ids)})"


def _row_major(digits: list[tuple[int, int]]) -> int:
    index = 0
    for digit, size in digits:
        index = index * size + digit
    return index

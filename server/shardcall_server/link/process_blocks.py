"""Blocks of an array that each process of the mesh holds, and their layout in its memory.

The front end and the workers compute the same blocks, so that messages need not describe them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec

Bounds = tuple[tuple[int, int], ...]
"""The first index of a block and the one after its last, for each axis of the array."""

_ALIGNMENT_BYTES = 64  # JAX aliases a block that begins at a multiple of this


@dataclass(frozen=True)
class Piece:
    """A block without its padding, and its offset in the memory of a process.

    Attributes:
        bounds: the bounds of the block without its padding.
        offset: the offset in bytes from the first piece of the array.
        nbytes: the size in bytes.
    """

    bounds: Bounds
    offset: int
    nbytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the block without its padding."""
        return tuple(high - low for low, high in self.bounds)

    def of(self, array: np.ndarray) -> np.ndarray:
        """Returns a view of the piece in the complete array."""
        inside: Any = (*(slice(low, high) for low, high in self.bounds), ...)
        part: np.ndarray = array[inside]
        return part

    def view(self, memory: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Returns a view of the piece in the memory of its process: uint8[n], which begins with the first piece."""
        return np.ndarray(self.shape, dtype, buffer=memory, offset=self.offset)


@dataclass(frozen=True)
class Blocks:
    """The distinct blocks of one array, by the index of a process.

    Attributes:
        held: the blocks that the devices of the process hold.
        gathered: the blocks that the process contributes when the array is gathered, held by none before it.
    """

    held: Mapping[int, frozenset[Bounds]]
    gathered: Mapping[int, frozenset[Bounds]]


def blocks_of(holders: Iterable[tuple[int, Bounds]]) -> Blocks:
    """Returns the blocks of an array.

    Args:
        holders: for each device, the index of its process and the bounds of its block with padding.
    """
    held: dict[int, set[Bounds]] = {}
    first: dict[Bounds, int] = {}
    for process, bounds in holders:
        held.setdefault(process, set()).add(bounds)
        first[bounds] = min(process, first.get(bounds, process))
    return Blocks(
        {process: frozenset(blocks) for process, blocks in held.items()},
        {process: frozenset(b for b in blocks if first[b] == process) for process, blocks in held.items()},
    )


def device_blocks(padded: Sequence[int], spec: Spec, mesh: MeshAxes) -> list[Bounds]:
    """Returns the bounds of each device's block, in row-major order of the mesh's axes.

    Args:
        padded: the padded shape of the array, which the spec divides.
        spec: the partition spec of the array.
    """
    steps = [n // mesh.size(names) for n, names in zip(padded, spec, strict=True)]
    blocks = []
    for position in itertools.product(*(range(size) for _, size in mesh.axes)):
        coordinates = dict(zip(mesh.names, position, strict=True))
        sizes = dict(mesh.axes)
        bounds = []
        for step, names in zip(steps, spec, strict=True):
            index = 0
            for name in names:
                index = index * sizes[name] + coordinates[name]
            bounds.append((index * step, (index + 1) * step))
        blocks.append(tuple(bounds))
    return blocks


def lay_out(blocks: Iterable[Bounds], array_type: ArrayType) -> list[Piece]:
    """Lays blocks out one after the other without their padding, in ascending order of their bounds.

    Args:
        blocks: the bounds of blocks of one array, with padding.
        array_type: the type of the unpadded array.
    """
    pieces, end = [], 0
    for block in sorted(blocks):
        bounds = crop(block, array_type.shape)
        nbytes = math.prod(high - low for low, high in bounds) * array_type.dtype.itemsize
        if nbytes:
            pieces.append(Piece(bounds, end, nbytes))
            end += -(-nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return pieces


def laid_out_bytes(pieces: Sequence[Piece]) -> int:
    """Returns the total size of pieces in memory."""
    return pieces[-1].offset + pieces[-1].nbytes if pieces else 0


def crop(bounds: Bounds, shape: Sequence[int]) -> Bounds:
    """Returns the bounds of a block without its padding."""
    return tuple((min(low, n), min(high, n)) for (low, high), n in zip(bounds, shape, strict=True))

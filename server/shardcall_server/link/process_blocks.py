"""Which blocks of an array each process of the mesh holds, and how they lie in its memory.

Front end and workers count alike, so that nothing of it needs to be told.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec

Bounds = tuple[tuple[int, int], ...]
"""The first index of a block and the one after its last, for each axis of the array."""

_ALIGNMENT_BYTES = 64  # JAX aliases a block that begins at a multiple of this


@dataclass(frozen=True)
class Piece:
    """A block without its padding, and where it lies in the memory of a process.

    Attributes:
        bounds: of what is left of the block.
        offset: in bytes, from the first piece of the array.
        nbytes: its size.
    """

    bounds: Bounds
    offset: int
    nbytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is left of the block."""
        return tuple(high - low for low, high in self.bounds)

    def of(self, array: np.ndarray) -> np.ndarray:
        """The piece in the whole array, as a view."""
        inside: Any = (*(slice(low, high) for low, high in self.bounds), ...)
        part: np.ndarray = array[inside]
        return part

    def view(self, memory: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """The piece in the memory of its process: uint8[n], whose first byte is the first piece's."""
        return np.ndarray(self.shape, dtype, buffer=memory, offset=self.offset)


@dataclass(frozen=True)
class Blocks:
    """The different blocks of one array, by the index of a process.

    Attributes:
        held: those that its devices hold.
        gathered: of these, those that it gives when the array is gathered: no process before it holds them.
    """

    held: Mapping[int, frozenset[Bounds]]
    gathered: Mapping[int, frozenset[Bounds]]


def blocks_of(holders: Iterable[tuple[int, Bounds]]) -> Blocks:
    """The blocks of an array.

    Args:
        holders: for each device, the index of its process and the bounds of its block, padding included.
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
    """The bounds of each device's block, in row-major order of the mesh's axes.

    Args:
        padded: the array's shape, which the spec divides.
        spec: how it is split.
        mesh: the axes that it is split over.
    """
    steps = [n // mesh.size(names) for n, names in zip(padded, spec, strict=True)]
    found = []
    for place in itertools.product(*(range(size) for _, size in mesh.axes)):
        at = dict(zip(mesh.names, place, strict=True))
        sizes = dict(mesh.axes)
        bounds = []
        for step, names in zip(steps, spec, strict=True):
            index = 0
            for name in names:
                index = index * sizes[name] + at[name]
            bounds.append((index * step, (index + 1) * step))
        found.append(tuple(bounds))
    return found


def lay_out(blocks: Iterable[Bounds], kind: ArrayType) -> list[Piece]:
    """Puts blocks one after the other: without their padding, by ascending place in the array.

    Args:
        blocks: of one array, padding included.
        kind: the array as its owner sees it.
    """
    pieces, end = [], 0
    for block in sorted(blocks):
        bounds = crop(block, kind.shape)
        nbytes = math.prod(high - low for low, high in bounds) * kind.dtype.itemsize
        if nbytes:
            pieces.append(Piece(bounds, end, nbytes))
            end += -(-nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return pieces


def laid_out_bytes(pieces: Sequence[Piece]) -> int:
    """The memory that pieces take together."""
    return pieces[-1].offset + pieces[-1].nbytes if pieces else 0


def crop(bounds: Bounds, shape: Sequence[int]) -> Bounds:
    """What is left of a block when the padding is cut off."""
    return tuple((min(low, n), min(high, n)) for (low, high), n in zip(bounds, shape, strict=True))

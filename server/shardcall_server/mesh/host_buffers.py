"""Where a command's operands are and its results go: whole, or of them what is this process's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from shardcall_server.compilation.program import Placement
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.mesh.placement import ParallelCopier, gather, gather_blocks, gathered_bytes, place, place_blocks

OnGathered = Callable[[int], None]
"""Told how many bytes of an array, from its first, are in place."""


@dataclass(frozen=True)
class Source:
    """An operand in memory.

    Attributes:
        kind: the whole array.
        memory: the array; or uint8[n], the blocks of it that this process's devices hold.
        is_whole: which of both.
    """

    kind: ArrayType
    memory: np.ndarray
    is_whole: bool = True

    def place(self, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
        """Puts it on the devices; see `placement.place`."""
        if self.is_whole:
            return place(self.memory, placement, copier, may_alias=may_alias)
        return place_blocks(self.memory, self.kind, placement, copier, may_alias=may_alias)


@dataclass(frozen=True)
class Target:
    """Where a result goes.

    Attributes:
        kind: the whole array.
        memory: the array; or uint8[n], of which the blocks that are this process's to give take what they need.
        is_whole: which of both.
    """

    kind: ArrayType
    memory: np.ndarray
    is_whole: bool = True

    def gather(self, array: jax.Array, copier: ParallelCopier, tell: OnGathered) -> None:
        """Copies there what this process has to give of an array; see `placement.gather`."""
        if self.is_whole:
            gather(array, self.memory, copier, tell)
        else:
            gather_blocks(array, self.kind, self.memory, copier)


def in_answer(array: jax.Array, kind: ArrayType, copier: ParallelCopier, *, is_whole: bool) -> bytes:
    """The bytes of a result that go into the answer."""
    if is_whole and array.shape == kind.shape and len(array.sharding.device_set) == 1:
        return np.asarray(array).tobytes()
    memory = np.empty(kind.shape, kind.dtype) if is_whole else np.zeros(gathered_bytes(array, kind), np.uint8)
    Target(kind, memory, is_whole).gather(array, copier, lambda _: None)
    return memory.tobytes()

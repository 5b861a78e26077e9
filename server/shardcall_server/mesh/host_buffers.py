"""Host buffers of a command's operands and results: complete arrays, or the blocks of this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.program import Placement
from shardcall_server.mesh.placement import (
    ParallelCopier,
    gather,
    gather_blocks,
    gathered_bytes,
    put_blocks,
    put_padded,
)

OnGathered = Callable[[int], None]
"""Called with the number of bytes of an array, from its first, that are gathered."""


@dataclass(frozen=True)
class Source:
    """An operand in memory.

    Attributes:
        type: the type of the complete array.
        memory: the array; or uint8[n], the blocks that the devices of this process hold.
        is_complete: True if ``memory`` is the complete array.
    """

    type: ArrayType
    memory: np.ndarray
    is_complete: bool = True

    def put(self, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
        """Puts the operand on the devices; see `placement.put_padded`."""
        if self.is_complete:
            return put_padded(self.memory, placement, copier, may_alias=may_alias)
        return put_blocks(self.memory, self.type, placement, copier, may_alias=may_alias)


@dataclass(frozen=True)
class Target:
    """The destination of a result in memory.

    Attributes:
        type: the type of the complete array.
        memory: the array; or uint8[n], for the blocks that this process contributes.
        is_complete: True if ``memory`` is the complete array.
    """

    type: ArrayType
    memory: np.ndarray
    is_complete: bool = True

    def gather(self, array: jax.Array, copier: ParallelCopier, on_gathered: OnGathered) -> None:
        """Copies the blocks that this process contributes; see `placement.gather`."""
        if self.is_complete:
            gather(array, self.memory, copier, on_gathered)
        else:
            gather_blocks(array, self.type, self.memory, copier)


def in_answer(array: jax.Array, array_type: ArrayType, copier: ParallelCopier, *, is_complete: bool) -> bytes:
    """Returns the bytes of a result for the answer."""
    if is_complete and array.shape == array_type.shape and len(array.sharding.device_set) == 1:
        return np.asarray(array).tobytes()
    memory = (
        np.empty(array_type.shape, array_type.dtype)
        if is_complete
        else np.zeros(gathered_bytes(array, array_type), np.uint8)
    )
    Target(array_type, memory, is_complete).gather(array, copier, lambda _: None)
    return memory.tobytes()

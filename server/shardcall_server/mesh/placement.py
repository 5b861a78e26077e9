"""Arrays onto the mesh and back: blocks, padding, gathering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from shardcall_server.compilation.program import Placement
from shardcall_server.kernels.element_types import held_type


def place(array: np.ndarray, placement: Placement) -> jax.Array:
    """Puts an array on the devices as blocks, padded with zeros where the mesh does not divide it.

    On CPU a block that is whole, contiguous and 64-byte aligned is not copied: it aliases ``array``, which
    must then neither change nor go away before the execution that reads it has finished.

    Args:
        array: row-major, of any shape that fits ``placement.padded``.
        placement: where it goes.
    """
    array = array.view(held_type(array.dtype))
    indices = placement.sharding.addressable_devices_indices_map(placement.padded)
    blocks: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
    buffers = []
    for device, index in indices.items():
        bounds = _bounds(index, placement.padded)
        if bounds not in blocks:
            blocks[bounds] = _block(array, bounds)
        buffers.append(jax.device_put(blocks[bounds], device))
    return jax.make_array_from_single_device_arrays(placement.padded, placement.sharding, buffers)


def gather(array: jax.Array, out: np.ndarray, copy: Callable[[np.ndarray, np.ndarray], None]) -> None:
    """Copies the leading corner of an array, shard by shard, to ``out``.

    Args:
        array: ready; at least as large as ``out`` in every axis.
        out: the result as the caller sees it.
        copy: copies the second array to the first, of the same shape.
    """
    out = out.view(held_type(out.dtype))
    seen: set[tuple[tuple[int, int], ...]] = set()
    for shard in array.addressable_shards:
        bounds = _bounds(shard.index, array.shape)
        if bounds in seen:  # the same block, replicated
            continue
        seen.add(bounds)
        inside = tuple(slice(low, min(high, n)) for (low, high), n in zip(bounds, out.shape, strict=True))
        if any(s.start >= s.stop for s in inside):
            continue
        local = tuple(slice(0, s.stop - s.start) for s in inside)
        target: Any = (*inside, ...)  # the ellipsis: an array, of a scalar too
        copy(out[target], np.asarray(shard.data)[local])


def _bounds(index: Sequence[slice] | None, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    assert index is not None
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


def _block(array: np.ndarray, bounds: Sequence[tuple[int, int]]) -> np.ndarray:
    part = array[tuple(slice(min(low, n), min(high, n)) for (low, high), n in zip(bounds, array.shape, strict=True))]
    missing = [(0, high - low - n) for (low, high), n in zip(bounds, part.shape, strict=True)]
    return np.pad(part, missing) if any(after for _, after in missing) else part

"""Transfer of arrays to the mesh and back: blocks, padding, gathering, and which copy of a block is gathered."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.program import Placement
from shardcall_server.kernels.core.element_types import held_type
from shardcall_server.link.process_blocks import Bounds, blocks_of, crop, laid_out_bytes, lay_out

Parts = Callable[[Bounds], np.ndarray]
"""Returns the part of an array within bounds inside it."""

_ALIGNMENT_BYTES = 64  # JAX copies memory with a smaller alignment, on one thread
_COPY_THREADS = 2  # two saturate the memory bandwidth of a small host
_MAX_LAYOUTS = 512
_LARGE_BYTES = 2 << 20
_SLABS, _SLAB_BYTES = 8, 16 << 20  # a slab is an eighth of a result, between _LARGE_BYTES and this

_numbers: dict[tuple[jax.sharding.Sharding, tuple[int, ...]], list[tuple[Bounds, int]]] = {}
"""The numbers of the shards to gather, which are the same for all arrays of a sharding and a shape."""


class ParallelCopier:
    """Copies large arrays on two threads; NumPy's copies release the interpreter lock."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_COPY_THREADS - 1, thread_name_prefix="copy")
        self._pool_free = threading.Lock()  # held, and never waited for, by the thread that the pool helps

    def by_rows(self, rows: int, nbytes: int, copy: Callable[[int, int], None]) -> None:
        """Calls ``copy(begin, end)`` for all rows, in two halves if the array is large and the thread is free."""
        if nbytes < _LARGE_BYTES or rows < _COPY_THREADS or not self._pool_free.acquire(blocking=False):
            copy(0, rows)
            return
        try:
            other = self._pool.submit(copy, 0, rows // 2)
            try:
                copy(rows // 2, rows)
            finally:  # even after an error, since the memory may be reused afterwards
                other.result()
        finally:
            self._pool_free.release()

    def close(self) -> None:
        """Stops the thread."""
        self._pool.shutdown()


def put_padded(array: np.ndarray, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
    """Puts an array on the devices as blocks, padded with zeros if the mesh does not divide it.

    Args:
        array: a row-major array whose shape fits ``placement.padded``.
        placement: the padded shape and sharding.
        copier: copies blocks that JAX cannot alias.
        may_alias: True if a block may alias ``array``, as a contiguous and 64-byte aligned block does on CPU. Then
            ``array`` must not change or be freed before the execution that reads it has finished. If False, the devices
            do not share the memory of a block once the result is ready.
    """

    def part(bounds: Bounds) -> np.ndarray:
        inside: Any = (*(slice(low, high) for low, high in bounds), ...)  # the ellipsis makes a scalar an array
        block: np.ndarray = array[inside]
        return block

    return _put(part, ArrayType(array.shape, array.dtype), placement, copier, may_alias=may_alias)


def put_blocks(
    memory: np.ndarray, array_type: ArrayType, placement: Placement, copier: ParallelCopier, *, may_alias: bool
) -> jax.Array:
    """Puts an array on the devices from the blocks that the devices of this process hold.

    Args:
        memory: uint8[n]: the blocks in the layout of `process_blocks.lay_out`.
        array_type: the type of the complete array.
        placement: the padded shape and sharding.
        copier: copies blocks that JAX cannot alias.
        may_alias: as for `put_padded`.
    """
    held = lay_out(held_blocks(placement), array_type)
    parts = {piece.bounds: piece.view(memory, array_type.dtype) for piece in held}

    def part(bounds: Bounds) -> np.ndarray:
        block = parts.get(bounds)
        return np.empty([high - low for low, high in bounds], array_type.dtype) if block is None else block

    return _put(part, array_type, placement, copier, may_alias=may_alias)


def held_blocks(placement: Placement) -> frozenset[Bounds]:
    """Returns the bounds, with padding, of the distinct blocks that the devices of this process hold."""
    return blocks_of(_holders(placement.sharding, placement.padded)).held.get(jax.process_index(), frozenset())


def _put(
    part: Parts, array_type: ArrayType, placement: Placement, copier: ParallelCopier, *, may_alias: bool
) -> jax.Array:
    held = held_type(array_type.dtype)
    blocks: dict[Bounds, np.ndarray] = {}

    def block(index: Sequence[slice] | None) -> np.ndarray:
        bounds = bounds_of(index, placement.padded)
        if bounds not in blocks:
            inside = part(crop(bounds, array_type.shape)).view(held)
            blocks[bounds] = _block(inside, bounds, copier, may_alias=may_alias)
        return blocks[bounds]

    # A process whose devices hold no block gets no callback, and JAX needs the dtype.
    return jax.make_array_from_callback(placement.padded, placement.sharding, block, dtype=held)


def gather(array: jax.Array, out: np.ndarray, copier: ParallelCopier, on_gathered: Callable[[int], None]) -> None:
    """Copies the leading corner of an array, shard by shard, to ``out``.

    Large arrays are gathered in slabs of rows, so that the first rows can be sent while later ones are still being
    copied.

    Args:
        array: a ready array, at least as large as ``out`` in every axis.
        out: the unpadded result.
        on_gathered: called with the number of bytes of ``out``, from its first, that are gathered.
    """
    if not out.size:
        return
    out = out.view(held_type(out.dtype))
    shards = shards_of(array)
    if not out.ndim:
        for data in shards.values():
            out[...] = data
        on_gathered(out.nbytes)
        return
    rows = out.shape[0]
    row_bytes = out.nbytes // rows
    slab_bytes = min(max(out.nbytes // _SLABS, _LARGE_BYTES), _SLAB_BYTES)
    step = max(1, slab_bytes // row_bytes)
    for begin in range(0, rows, step):
        end = min(begin + step, rows)

        def copy(low: int, high: int, begin: int = begin) -> None:
            _copy_rows(shards, out, begin + low, begin + high)

        copier.by_rows(end - begin, (end - begin) * row_bytes, copy)
        on_gathered(end * row_bytes)


def gathered_bytes(array: jax.Array, array_type: ArrayType) -> int:
    """Returns the number of bytes that `gather_blocks` writes."""
    return laid_out_bytes(lay_out(_contributed_blocks(array), array_type))


def gather_blocks(array: jax.Array, array_type: ArrayType, memory: np.ndarray, copier: ParallelCopier) -> None:
    """Copies the blocks that this process contributes, in the layout of `process_blocks.lay_out`.

    Args:
        array: a ready array, at least as large as ``array_type`` in every axis.
        array_type: the type of the unpadded array.
        memory: uint8[n]: the destination of the blocks.
    """
    shards = {crop(bounds, array_type.shape): data for bounds, data in shards_of(array).items()}
    for piece in lay_out(shards, array_type):
        out = piece.view(memory, held_type(array_type.dtype))
        inside: Any = (*(slice(n) for n in piece.shape), ...)
        part = shards[piece.bounds][inside]
        if not piece.shape:
            out[...] = part
            continue

        def copy(begin: int, end: int, out: np.ndarray = out, part: np.ndarray = part) -> None:
            np.copyto(out[begin:end], part[begin:end])

        copier.by_rows(piece.shape[0], piece.nbytes, copy)


def shards_of(array: jax.Array) -> dict[Bounds, np.ndarray]:
    """Returns the distinct blocks of an array by their bounds; on CPU without a copy.

    On a mesh of several processes, only the blocks that this process contributes.
    """
    if array.is_fully_addressable and len(array.sharding.device_set) == 1:
        return {tuple((0, n) for n in array.shape): np.asarray(array)}
    key = array.sharding, array.shape
    if (numbers := _numbers.get(key)) is None:
        while len(_numbers) >= _MAX_LAYOUTS:
            _numbers.pop(next(iter(_numbers)), None)
        numbers = _numbers[key] = _numbers_of_shards(array)
    return {bounds: np.asarray(array.addressable_data(number)) for bounds, number in numbers}


def _numbers_of_shards(array: jax.Array) -> list[tuple[Bounds, int]]:
    """Returns the bounds of the distinct blocks that this process contributes, each with the number of a shard."""
    contributed = None if array.is_fully_addressable else _contributed_blocks(array)
    numbers: dict[Bounds, int] = {}
    for number, shard in enumerate(array.addressable_shards):
        bounds = bounds_of(shard.index, array.shape)
        if contributed is None or bounds in contributed:
            numbers.setdefault(bounds, number)  # others are the same block, replicated
    return [*numbers.items()]


def _contributed_blocks(array: jax.Array) -> frozenset[Bounds]:
    return blocks_of(_holders(array.sharding, array.shape)).gathered.get(jax.process_index(), frozenset())


def _holders(sharding: jax.sharding.Sharding, shape: tuple[int, ...]) -> list[tuple[int, Bounds]]:
    devices: Mapping[Any, Any] = sharding.devices_indices_map(shape)
    return [(device.process_index, bounds_of(index, shape)) for device, index in devices.items()]


def _copy_rows(shards: dict[Bounds, np.ndarray], out: np.ndarray, begin: int, end: int) -> None:
    """Copies the rows from ``begin`` to ``end`` of every shard."""
    for bounds, data in shards.items():
        low, high = max(begin, bounds[0][0]), min(end, bounds[0][1])
        inside = [(low, high), *((a, min(b, n)) for (a, b), n in zip(bounds[1:], out.shape[1:], strict=True))]
        if any(a >= b for a, b in inside):
            continue
        target: Any = tuple(slice(a, b) for a, b in inside)
        source: Any = tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(inside, bounds, strict=True))
        np.copyto(out[target], data[source])


def bounds_of(index: Sequence[slice] | None, shape: Sequence[int]) -> Bounds:
    """Returns the bounds of a block that JAX describes by slices."""
    assert index is not None
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


def _block(part: np.ndarray, bounds: Bounds, copier: ParallelCopier, *, may_alias: bool) -> np.ndarray:
    """Returns the padded block of a device: a view if JAX can alias the part, else a copy."""
    shape = tuple(high - low for low, high in bounds)
    padded = part.shape != shape
    if may_alias and not padded and (part.nbytes < _LARGE_BYTES or _is_aligned(part)):
        return part
    block = aligned_empty(shape, part.dtype)
    if not part.ndim:
        block[...] = part
        return block
    if padded:
        for axis, (n, size) in enumerate(zip(part.shape, shape, strict=True)):
            rest: Any = (*(slice(m) for m in part.shape[:axis]), slice(n, size))
            block[rest] = 0
    target: Any = tuple(slice(n) for n in part.shape)

    def copy(begin: int, end: int) -> None:
        np.copyto(block[target][begin:end], part[begin:end])

    copier.by_rows(len(part), part.nbytes, copy)
    return block


def _is_aligned(part: np.ndarray) -> bool:
    return part.flags.c_contiguous and part.ctypes.data % _ALIGNMENT_BYTES == 0


def aligned_empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Returns new memory that JAX aliases on CPU; it has any values."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + _ALIGNMENT_BYTES, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[begin : begin + nbytes].view(dtype).reshape(shape)

"""Arrays onto the mesh and back: blocks, padding, gathering."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from shardcall_server.compilation.program import Placement
from shardcall_server.kernels.element_types import held_type
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.link.process_blocks import Bounds, blocks_of, crop, laid_out_bytes, lay_out

Parts = Callable[[Bounds], np.ndarray]
"""The part of an array within bounds that lie inside it."""

_ALIGNMENT_BYTES = 64  # JAX copies memory that begins elsewhere, on one thread
_COPY_THREADS = 2  # two saturate the memory of a small host, more gain nothing
_LARGE_BYTES = 2 << 20
_SLABS, _SLAB_BYTES = 8, 16 << 20  # a slab is an eighth of a result, between the smallest large copy and this


class ParallelCopier:
    """Copies large arrays by two threads; NumPy's copies release the interpreter lock."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_COPY_THREADS - 1, thread_name_prefix="copy")
        self._pool_free = threading.Lock()

    def by_rows(self, rows: int, nbytes: int, copy: Callable[[int, int], None]) -> None:
        """Has ``copy(begin, end)`` do all rows: by halves where there is much to copy and the other thread is free."""
        if nbytes < _LARGE_BYTES or rows < _COPY_THREADS or not self._pool_free.acquire(blocking=False):
            copy(0, rows)
            return
        try:
            other = self._pool.submit(copy, 0, rows // 2)
            try:
                copy(rows // 2, rows)
            finally:  # whatever fails: afterwards the memory may be another's
                other.result()
        finally:
            self._pool_free.release()

    def close(self) -> None:
        """Ends the thread."""
        self._pool.shutdown()


def place(array: np.ndarray, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
    """Puts an array on the devices as blocks, padded with zeros where the mesh does not divide it.

    Args:
        array: row-major, of any shape that fits ``placement.padded``.
        placement: where it goes.
        copier: copies blocks that JAX cannot take as they lie.
        may_alias: whether a block may be the memory of ``array`` itself, as on CPU one is that is whole, contiguous
            and 64-byte aligned. Then ``array`` must neither change nor go away before the execution that reads it has
            finished; else nobody but the devices has the memory of a block once the result is ready.
    """

    def part(bounds: Bounds) -> np.ndarray:
        inside: Any = (*(slice(low, high) for low, high in bounds), ...)  # the ellipsis: an array, of a scalar too
        found: np.ndarray = array[inside]
        return found

    return _place(part, ArrayType(array.shape, array.dtype), placement, copier, may_alias=may_alias)


def place_blocks(
    memory: np.ndarray, kind: ArrayType, placement: Placement, copier: ParallelCopier, *, may_alias: bool
) -> jax.Array:
    """As `place`, where there is of the array only what this process's devices hold.

    Args:
        memory: uint8[n]: the blocks as `process_blocks.lay_out` puts them.
        kind: the whole array.
        placement: where it goes.
        copier: copies.
        may_alias: as of `place`.
    """
    held = blocks_of(_holders(placement.sharding, placement.padded)).held.get(jax.process_index(), frozenset())
    parts = {piece.bounds: piece.view(memory, kind.dtype) for piece in lay_out(held, kind)}

    def part(bounds: Bounds) -> np.ndarray:
        found = parts.get(bounds)
        return np.empty([high - low for low, high in bounds], kind.dtype) if found is None else found

    return _place(part, kind, placement, copier, may_alias=may_alias)


def _place(part: Parts, kind: ArrayType, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
    held = held_type(kind.dtype)
    blocks: dict[Bounds, np.ndarray] = {}

    def block(index: Sequence[slice] | None) -> np.ndarray:
        bounds = _bounds(index, placement.padded)
        if bounds not in blocks:
            inside = part(crop(bounds, kind.shape)).view(held)
            blocks[bounds] = _block(inside, bounds, copier, may_alias=may_alias)
        return blocks[bounds]

    # A process whose devices hold nothing of it is asked for no block, and must be told the type.
    return jax.make_array_from_callback(placement.padded, placement.sharding, block, dtype=held)


def gather(array: jax.Array, out: np.ndarray, copier: ParallelCopier, tell: Callable[[int], None]) -> None:
    """Copies the leading corner of an array, shard by shard, to ``out``.

    Large arrays are gathered in slabs of rows, so that the first rows can be on their way while later ones are
    still being copied.

    Args:
        array: ready; at least as large as ``out`` in every axis.
        out: the result as the caller sees it.
        copier: copies.
        tell: told how many bytes of ``out``, from its first, are in place.
    """
    if not out.size:
        return
    out = out.view(held_type(out.dtype))
    shards = _shards(array)
    if not out.ndim:
        for data in shards.values():
            out[...] = data
        tell(out.nbytes)
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
        tell(end * row_bytes)


def gathered_bytes(array: jax.Array, kind: ArrayType) -> int:
    """The bytes that `gather_blocks` writes of an array."""
    return laid_out_bytes(lay_out(_given(array), kind))


def gather_blocks(array: jax.Array, kind: ArrayType, memory: np.ndarray, copier: ParallelCopier) -> None:
    """Copies the blocks of an array that are this process's to give, as `process_blocks.lay_out` puts them.

    Args:
        array: ready; at least as large as ``kind`` in every axis.
        kind: the array as its owner sees it.
        memory: uint8[n]: where the first block goes, and the others behind it.
        copier: copies.
    """
    shards = {crop(bounds, kind.shape): data for bounds, data in _shards(array).items()}
    for piece in lay_out(shards, kind):
        out = piece.view(memory, held_type(kind.dtype))
        inside: Any = (*(slice(n) for n in piece.shape), ...)
        part = shards[piece.bounds][inside]
        if not piece.shape:
            out[...] = part
            continue

        def copy(begin: int, end: int, out: np.ndarray = out, part: np.ndarray = part) -> None:
            np.copyto(out[begin:end], part[begin:end])

        copier.by_rows(piece.shape[0], piece.nbytes, copy)


def _shards(array: jax.Array) -> dict[Bounds, np.ndarray]:
    """The different blocks of an array, each once, and where they belong; on CPU without a copy.

    Of a mesh of several processes those that are this one's to give.
    """
    if array.is_fully_addressable and len(array.sharding.device_set) == 1:
        return {tuple((0, n) for n in array.shape): np.asarray(array)}
    given = None if array.is_fully_addressable else _given(array)
    shards: dict[Bounds, np.ndarray] = {}
    for shard in array.addressable_shards:
        bounds = _bounds(shard.index, array.shape)
        if bounds not in shards and (given is None or bounds in given):  # else the same block, replicated
            shards[bounds] = np.asarray(shard.data)
    return shards


def _given(array: jax.Array) -> frozenset[Bounds]:
    return blocks_of(_holders(array.sharding, array.shape)).gathered.get(jax.process_index(), frozenset())


def _holders(sharding: jax.sharding.Sharding, shape: tuple[int, ...]) -> list[tuple[int, Bounds]]:
    devices: Mapping[Any, Any] = sharding.devices_indices_map(shape)
    return [(device.process_index, _bounds(index, shape)) for device, index in devices.items()]


def _copy_rows(shards: dict[Bounds, np.ndarray], out: np.ndarray, begin: int, end: int) -> None:
    """Copies the rows from ``begin`` to ``end`` of every shard that has some of them."""
    for bounds, data in shards.items():
        low, high = max(begin, bounds[0][0]), min(end, bounds[0][1])
        inside = [(low, high), *((a, min(b, n)) for (a, b), n in zip(bounds[1:], out.shape[1:], strict=True))]
        if any(a >= b for a, b in inside):
            continue
        target: Any = tuple(slice(a, b) for a, b in inside)
        source: Any = tuple(slice(a - o, b - o) for (a, b), (o, _) in zip(inside, bounds, strict=True))
        np.copyto(out[target], data[source])


def _bounds(index: Sequence[slice] | None, shape: Sequence[int]) -> Bounds:
    assert index is not None
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


def _block(part: np.ndarray, bounds: Bounds, copier: ParallelCopier, *, may_alias: bool) -> np.ndarray:
    """A device's block around what of it is no padding: a view where JAX can take it as it lies, else a copy."""
    shape = tuple(high - low for low, high in bounds)
    padded = part.shape != shape
    if may_alias and not padded and (part.nbytes < _LARGE_BYTES or _lies_well(part)):
        return part
    block = _aligned_empty(shape, part.dtype)
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


def _lies_well(part: np.ndarray) -> bool:
    return part.flags.c_contiguous and part.ctypes.data % _ALIGNMENT_BYTES == 0


def _aligned_empty(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + _ALIGNMENT_BYTES, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[begin : begin + nbytes].view(dtype).reshape(shape)

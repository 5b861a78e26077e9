"""Transfer of arrays between the devices and files on disk, in pieces of a few MiB.

Every process of the mesh transfers its own blocks, and joins those that are neighbors to boxes. In a mesh of one
process that is one box, the complete array, and a piece is a range of the file: it is contiguous whatever the sharding,
so a file is written and read from its beginning to its end. One piece is all the memory that a transfer needs beside
the blocks of the devices.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.program import Placement
from shardcall_server.kernels.core.element_types import held_type
from shardcall_server.link.block_checksums import blocks_of, check_blocks
from shardcall_server.link.file_errors import damaged, file_error, replaced
from shardcall_server.link.process_blocks import Bounds, crop
from shardcall_server.mesh.placement import ParallelCopier, aligned_empty, bounds_of, held_blocks, shards_of
from shardcall_server.mesh.resident_arrays import DeviceArray

PIECE_BYTES = 8 << 20

_MAX_RUNS = 1 << 16
"""The most runs whose positions are in memory: a piece of 8 MiB may have as many as bytes."""

_MAX_BYTE = {
    np.dtype(np.bool_): 1,
    np.dtype(ml_dtypes.uint4): 15,
    np.dtype(ml_dtypes.int4): 15,
}
"""The largest byte that stands for a value, of the types that do not have a value for every byte."""


@dataclass(frozen=True)
class ArrayFile:
    """The location of an array in a file.

    Attributes:
        fd: the descriptor of the file.
        offset: the offset of the first element, in bytes.
    """

    fd: int
    offset: int

    def write(self, array: jax.Array, array_type: ArrayType, copier: ParallelCopier) -> None:
        """Writes this process's blocks of the leading corner of an array, row-major and little-endian, to the disk.

        Args:
            array: a ready array, at least as large as ``array_type`` in every axis.

        Raises:
            CallError: FILE_LIMIT, FILES_UNAVAILABLE.
        """
        shards, held = shards_of(array), held_type(array_type.dtype)
        try:
            for bounds in _pieces_within(boxes(shards, array_type.shape), held.itemsize):
                piece = gathered(shards, bounds, held, copier).reshape(-1).view(np.uint8)
                for run, position in self._runs(piece, bounds, array_type.shape, held.itemsize):
                    _write_all(self.fd, run, position)
            os.fsync(self.fd)
        except OSError as error:
            raise file_error(error) from error

    def read(self, bounds: Bounds, shape: Sequence[int], itemsize: int, data: np.ndarray) -> None:
        """Reads a piece of a row-major array of a shape to memory: uint8[n].

        Raises:
            CallError: FILE_DAMAGED, FILES_UNAVAILABLE.
        """
        for run, position in self._runs(data, bounds, shape, itemsize):
            _read_all(self.fd, run, position)

    def _runs(
        self, piece: np.ndarray, bounds: Bounds, shape: Sequence[int], itemsize: int
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Yields the parts of a piece that are contiguous in the file, each with its position."""
        begin = 0
        for part in parts_of_runs(bounds, shape):
            offsets = run_offsets(part, shape)
            nbytes = _size(part) * itemsize // len(offsets)
            for offset in map(int, offsets):
                yield piece[begin : begin + nbytes], self.offset + offset * itemsize
                begin += nbytes


@dataclass(frozen=True)
class FileSource:
    """An array in a file.

    Attributes:
        type: its type.
        file: its location.
        is_column_major: True if the first index varies fastest.
        is_big_endian: True if the first byte of a number is its most significant one.
    """

    type: ArrayType
    file: ArrayFile
    is_column_major: bool
    is_big_endian: bool

    def put(self, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
        """Puts the array on the devices, padded with zeros; they share no memory with the file in any case.

        Raises:
            CallError: FILE_DAMAGED, FILES_UNAVAILABLE.
        """
        held = boxes(held_blocks(placement), self.type.shape)
        return put_pieces(self._pieces(held, held_type(self.type.dtype)), self.type, placement, copier)

    def _pieces(self, of_process: Sequence[Bounds], held: np.dtype) -> Iterator[tuple[Bounds, np.ndarray]]:
        """Yields pieces of boxes, each with its bounds in the array; a piece is valid until the next one."""
        order = -1 if self.is_column_major else 1
        buffer = np.empty(max(PIECE_BYTES, held.itemsize), np.uint8)
        stored = held.newbyteorder(">") if self.is_big_endian else held
        for bounds in _pieces_within([box[::order] for box in of_process], held.itemsize):
            shape = [high - low for low, high in bounds]
            data = buffer[: int(np.prod(shape, dtype=np.int64)) * held.itemsize]
            self.file.read(bounds, self.type.shape[::order], held.itemsize, data)
            if has_invalid(data, self.type.dtype):
                raise damaged(f"has a byte that stands for no value of the type {self.type.dtype.name}")
            piece = data.view(stored).reshape(shape)
            yield bounds[::order], piece.T if self.is_column_major else piece


@dataclass(frozen=True)
class FolderSource:
    """An array in an npy file of a folder, which is opened when the array is put.

    Attributes:
        type: its type.
        folder: the descriptor of the folder.
        name: the name of the file.
        offset: the offset of its first element, in bytes.
        block_checksums: those of the file's blocks; none if it was written without.
        array_name: the name of the array, for errors.
    """

    type: ArrayType
    folder: int
    name: str
    offset: int
    block_checksums: tuple[int, ...] = ()
    array_name: str = ""

    def put(self, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
        """Puts the array on the devices, if all that is read of the file has its checksums; as `FileSource.put`.

        Raises:
            CallError: FILE_DAMAGED.
        """
        try:
            fd = os.open(self.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.folder)
            try:
                check_blocks(fd, self._blocks(placement), self.block_checksums)
                source = FileSource(self.type, ArrayFile(fd, self.offset), is_column_major=False, is_big_endian=False)
                return source.put(placement, copier, may_alias=may_alias)
            finally:
                os.close(fd)
        except (OSError, CallError) as error:
            why = error.strerror if isinstance(error, OSError) else error.message
            raise CallError(
                Reason.FILE_DAMAGED,
                f"the array {self.array_name!r} is in a checkpoint, whose file {self.name} cannot be read ({why}); put "
                "the array again with replace=True, delete it, or have the administrator bring back the file",
                field="handle",
                metadata={"name": self.array_name},
            ) from None

    def _blocks(self, placement: Placement) -> list[int]:
        """Returns the numbers of the blocks with the header and the elements of this process."""
        blocks, itemsize = {0}, held_type(self.type.dtype).itemsize
        for box in boxes(held_blocks(placement), self.type.shape):
            first = _position([low for low, _ in box], self.type.shape)
            last = _position([high - 1 for _, high in box], self.type.shape)
            blocks.update(blocks_of(self.offset + first * itemsize, self.offset + (last + 1) * itemsize))
        return sorted(blocks)


@dataclass(frozen=True)
class UnreadableSource:
    """An array in a file that this process cannot open.

    Attributes:
        error: why not.
    """

    error: CallError

    def put(self, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
        """Raises the error."""
        raise self.error


def write_file(folder: int, name: str, header: bytes, resident: DeviceArray, copier: ParallelCopier) -> None:
    """Writes this process's blocks of an array to a new file in a folder, and brings them to the disk.

    The processes of a mesh write one file, which the first to come creates.

    Args:
        folder: the descriptor of the folder.
        name: the name of the file.
        header: the bytes before the first element.

    Raises:
        CallError: FILE_LIMIT, FILES_UNAVAILABLE.
    """
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            os.ftruncate(fd, len(header) + resident.type.nbytes)
            _write_all(fd, np.frombuffer(header, np.uint8), 0)
            ArrayFile(fd, len(header)).write(resident.array, resident.type, copier)
        finally:
            os.close(fd)
    except OSError as error:
        raise file_error(error) from error


def put_pieces(
    pieces: Iterable[tuple[Bounds, np.ndarray]], array_type: ArrayType, placement: Placement, copier: ParallelCopier
) -> jax.Array:
    """Puts an array on the devices, padded with zeros.

    Args:
        pieces: parts of the array in the type that it has on the devices, each with its bounds in the array.
    """
    held = held_type(array_type.dtype)
    blocks = _empty_blocks(placement, array_type, held)
    for bounds, piece in pieces:
        _scatter(piece, bounds, blocks, copier)

    def block(index: Sequence[slice] | None) -> np.ndarray:
        bounds = bounds_of(index, placement.padded)
        if bounds in blocks:
            return blocks[bounds]
        # JAX asks a process without devices of the mesh, too, for a block that every device holds.
        return np.empty([high - low for low, high in bounds], held)

    return jax.make_array_from_callback(placement.padded, placement.sharding, block, dtype=held)


def has_invalid(data: np.ndarray, dtype: np.dtype) -> bool:
    """Returns True if bytes of elements include one that stands for no value of their type."""
    largest = _MAX_BYTE.get(dtype, 255)
    return largest < 255 and data.size > 0 and bool(data.max() > largest)


def pieces_of(shape: Sequence[int], itemsize: int) -> Iterator[Bounds]:
    """Yields the bounds of pieces of a row-major array, in its order; each is contiguous.

    Args:
        shape: the shape of the array.
        itemsize: the bytes of an element.
    """
    if 0 in shape:
        return
    if not shape:
        yield ()
        return
    row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * itemsize
    step = PIECE_BYTES // row_bytes
    for low in range(0, shape[0], max(step, 1)):
        if step:
            yield ((low, min(low + step, shape[0])), *((0, size) for size in shape[1:]))
        else:
            yield from (((low, low + 1), *rest) for rest in pieces_of(shape[1:], itemsize))


def boxes(blocks: Iterable[Bounds], shape: Sequence[int]) -> list[Bounds]:
    """Returns the bounds of boxes of which blocks of an array, distinct and without their padding, consist."""
    cropped = [crop(block, shape) for block in blocks]
    joined = sorted(block for block in cropped if all(low < high for low, high in block))
    for axis in reversed(range(len(shape))):
        joined = _joined(joined, axis)
    return joined


def _joined(blocks: Sequence[Bounds], axis: int) -> list[Bounds]:
    """Joins blocks that are neighbors along an axis."""
    joined: list[Bounds] = []
    for block in sorted(blocks, key=lambda block: (_others(block, axis), block[axis])):
        (low, end), before = joined[-1][axis] if joined else (0, -1), joined[-1] if joined else block
        if end == block[axis][0] and _others(before, axis) == _others(block, axis):
            joined[-1] = (*block[:axis], (low, block[axis][1]), *block[axis + 1 :])
        else:
            joined.append(block)
    return joined


def _others(block: Bounds, axis: int) -> Bounds:
    return block[:axis] + block[axis + 1 :]


def run_offsets(bounds: Bounds, shape: Sequence[int]) -> np.ndarray:
    """Returns the offsets of the parts of a box that are contiguous in a row-major array, in elements.

    Args:
        bounds: the box.
        shape: the shape of the array.

    Returns:
        int64[n]: the offsets of n parts of one size, in the order of the box.
    """
    axis = _contiguous_from(bounds, shape)
    offsets, stride = np.zeros(1, np.int64), int(np.prod(shape[axis:], dtype=np.int64))
    for number in reversed(range(axis)):
        low, high = bounds[number]
        along = np.arange(low, high if number < axis - 1 else low + 1) * stride
        offsets = (along[:, None] + offsets).reshape(-1)
        stride *= shape[number]
    return offsets


def parts_of_runs(bounds: Bounds, shape: Sequence[int]) -> Iterator[Bounds]:
    """Yields the parts of a box, in its order, each of which has `_MAX_RUNS` contiguous parts at most."""
    axis = _contiguous_from(bounds, shape) - 1
    if math.prod(high - low for low, high in bounds[: max(axis, 0)]) <= _MAX_RUNS:
        yield bounds
        return
    number = next(i for i, (low, high) in enumerate(bounds) if high - low > 1)
    low, high = bounds[number]
    middle = (low + high) // 2
    for half in ((low, middle), (middle, high)):
        yield from parts_of_runs((*bounds[:number], half, *bounds[number + 1 :]), shape)


def _contiguous_from(bounds: Bounds, shape: Sequence[int]) -> int:
    """Returns the first axis from which on a box has all of the array."""
    axis = len(shape)
    while axis and bounds[axis - 1] == (0, shape[axis - 1]):
        axis -= 1
    return axis


def _position(index: Sequence[int], shape: Sequence[int]) -> int:
    """Returns the number of elements before one of a row-major array."""
    position = 0
    for i, size in zip(index, shape, strict=True):
        position = position * size + i
    return position


def _size(bounds: Bounds) -> int:
    return math.prod(high - low for low, high in bounds)


def _pieces_within(outer: Iterable[Bounds], itemsize: int) -> Iterator[Bounds]:
    """Yields the bounds of pieces of boxes, as `pieces_of`."""
    for box in outer:
        for piece in pieces_of([high - low for low, high in box], itemsize):
            yield tuple((begin + low, begin + high) for (low, high), (begin, _) in zip(piece, box, strict=True))


def gathered(shards: Mapping[Bounds, np.ndarray], bounds: Bounds, held: np.dtype, copier: ParallelCopier) -> np.ndarray:
    """Returns a contiguous piece of an array: of a single shard without a copy, if it is contiguous there."""
    piece: np.ndarray | None = None
    for of_shard, data in shards.items():
        if (both := common(bounds, of_shard)) is None:
            continue
        inside: np.ndarray = data[_within(both, of_shard)]
        if both == bounds and inside.flags.c_contiguous:
            return inside
        if piece is None:
            piece = np.empty([high - low for low, high in bounds], held)
        _copy(piece[_within(both, bounds)], inside, copier)
    assert piece is not None
    return piece


def _scatter(piece: np.ndarray, bounds: Bounds, blocks: Mapping[Bounds, np.ndarray], copier: ParallelCopier) -> None:
    """Copies a piece of an array to the blocks that have a part of it."""
    for of_block, block in blocks.items():
        if (both := common(bounds, of_block)) is not None:
            _copy(block[_within(both, of_block)], piece[_within(both, bounds)], copier)


def _copy(to: np.ndarray, source: np.ndarray, copier: ParallelCopier) -> None:
    if not to.ndim:
        to[...] = source
        return

    def copy(begin: int, end: int) -> None:
        np.copyto(to[begin:end], source[begin:end])

    copier.by_rows(len(to), to.nbytes, copy)


def _empty_blocks(placement: Placement, array_type: ArrayType, held: np.dtype) -> dict[Bounds, np.ndarray]:
    """Returns memory for the blocks of this process by their bounds; those with padding are filled with zeros."""
    blocks: dict[Bounds, np.ndarray] = {}
    for bounds in held_blocks(placement):
        blocks[bounds] = block = aligned_empty([high - low for low, high in bounds], held)
        if crop(bounds, array_type.shape) != bounds:
            block[...] = 0
    return blocks


def common(a: Bounds, b: Bounds) -> Bounds | None:
    """Returns the bounds of the elements that two parts of an array have in common; None if there are none."""
    both = tuple((max(low, low_b), min(high, high_b)) for (low, high), (low_b, high_b) in zip(a, b, strict=True))
    return None if any(low >= high for low, high in both) else both


def _within(part: Bounds, outer: Bounds) -> Any:
    """Returns the index of a part of an array in an outer part of it; the ellipsis makes a scalar an array."""
    return (*(slice(low - begin, high - begin) for (low, high), (begin, _) in zip(part, outer, strict=True)), ...)


def _write_all(fd: int, piece: np.ndarray, position: int) -> None:
    data = piece.reshape(-1).view(np.uint8).data
    while data:
        count = os.pwrite(fd, data, position)
        data, position = data[count:], position + count


def _read_all(fd: int, data: np.ndarray, position: int) -> None:
    """Fills memory from a file.

    Raises:
        CallError: FILE_DAMAGED: the file ends before; FILE_NOT_FOUND, FILES_UNAVAILABLE.
    """
    rest = data.data
    try:
        while rest:
            count = os.preadv(fd, [rest], position)
            if not count:
                raise damaged("has become shorter while it was read")
            rest, position = rest[count:], position + count
    except OSError as error:
        is_replaced = error.errno == errno.ESTALE  # of a network file system
        raise (replaced() if is_replaced else file_error(error)) from error

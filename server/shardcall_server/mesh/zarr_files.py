"""Transfer of arrays between the devices and directories in the Zarr format, chunk by chunk.

tensorstore, of the extra ``zarr``, encodes and decodes the chunks. It is imported when the first of them is saved or
loaded. It opens the directory by its descriptor, gets metadata that the front end has checked, and caches nothing, so
a transfer needs the memory of a few chunks beside the blocks of the devices.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import numpy as np
import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.program import Placement
from shardcall_server.kernels.core.element_types import held_type
from shardcall_server.link.file_errors import damaged_zarr, file_error, replaced
from shardcall_server.link.process_blocks import Bounds
from shardcall_server.mesh.array_files import PIECE_BYTES, boxes, common, gathered, has_invalid, put_pieces
from shardcall_server.mesh.placement import ParallelCopier, held_blocks, shards_of

_METADATA_NAME = "zarr.json"
_CHUNKS_AT_ONCE = 1024
_CONTEXT = {
    "cache_pool": {"total_bytes_limit": 0},
    "data_copy_concurrency": {"limit": 2},
    "file_io_concurrency": {"limit": 4},
    "file_io_locking": {"mode": "none"},  # nobody else knows the directory
    "file_io_sync": False,  # the front end brings the complete directory to the disk, unless other hosts wrote to it
}
_ERROR_CODE = re.compile(r"\[os_error_code='(\d+)'\]")


@dataclass(frozen=True)
class ZarrFolder:
    """The directory of a Zarr array.

    Attributes:
        fd: its descriptor.
        metadata: the members of its metadata that say how it is stored, as JSON.
    """

    fd: int
    metadata: str

    def write(self, array: jax.Array, array_type: ArrayType, copier: ParallelCopier) -> None:
        """Writes this process's chunks of the leading corner of an array, one after the other.

        A chunk is a part of one box of blocks: several processes write no common chunk.

        Args:
            array: a ready array, at least as large as ``array_type`` in every axis.

        Raises:
            CallError: FILE_LIMIT, FILES_UNAVAILABLE.
        """
        shards, held = shards_of(array), held_type(array_type.dtype)
        store = self.open()
        try:
            of_process = boxes(shards, array_type.shape)
            for bounds in boxes_of(array_type.shape, _chunk_shape(store)):
                if not any(common(bounds, box) == bounds for box in of_process):
                    continue
                self.check_present()
                piece = gathered(shards, bounds, held, copier).view(array_type.dtype)
                store[_index(bounds)].write(piece, can_reference_source_data_indefinitely=True).result()
        except (ValueError, OSError) as error:
            raise file_error(_system_error(error)) from error

    def open(self) -> Any:
        """Opens the array by tensorstore.

        Raises:
            CallError: FILE_DAMAGED: tensorstore refuses the metadata; FILES_UNAVAILABLE: it is not installed.
        """
        library = _tensorstore()
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": f"/proc/self/fd/{self.fd}/"},
            "metadata": json.loads(self.metadata),
            "open": True,
            "assume_metadata": True,
            "store_data_equal_to_fill_value": True,
        }
        try:
            context = library.Context(_CONTEXT | {"file_io_sync": jax.process_count() > 1})
            return library.open(spec, context=context).result()
        except (ValueError, OSError, OverflowError) as error:
            structlog.get_logger().warning("tensorstore refuses the metadata of a Zarr array", error=str(error)[:1000])
            raise damaged_zarr("has a fill value or codecs that do not fit its type and its chunks") from error

    def check_present(self) -> None:
        """Checks that the directory has not been removed: its metadata file is removed first.

        Raises:
            CallError: FILE_NOT_FOUND.
        """
        try:
            os.stat(_METADATA_NAME, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            raise replaced() from None


@dataclass(frozen=True)
class ZarrSource:
    """An array in the directory of a Zarr array.

    Attributes:
        type: its type.
        folder: its directory.
    """

    type: ArrayType
    folder: ZarrFolder

    def put(self, placement: Placement, copier: ParallelCopier, *, may_alias: bool) -> jax.Array:
        """Puts the array on the devices, padded with zeros.

        Raises:
            CallError: FILE_DAMAGED, FILE_NOT_FOUND, FILES_UNAVAILABLE.
        """
        held = boxes(held_blocks(placement), self.type.shape)
        array = put_pieces(self._pieces(held), self.type, placement, copier)
        self.folder.check_present()  # else chunks may be missing, which stand for the fill value
        return array

    def _pieces(self, of_process: Sequence[Bounds]) -> Iterator[tuple[Bounds, np.ndarray]]:
        """Yields the parts of boxes, each of complete chunks or to an end of its box, with its bounds."""
        store, held = self.folder.open(), held_type(self.type.dtype)
        parts = boxes_of(self.type.shape, _steps(self.type, _chunk_shape(store)))
        for bounds in (common(part, box) for part, box in itertools.product(parts, of_process)):
            if bounds is None:
                continue
            try:
                piece = np.asarray(store[_index(bounds)].read(order="C").result())
            except (ValueError, OSError) as error:
                if _ERROR_CODE.search(str(error)):
                    raise file_error(_system_error(error)) from error
                structlog.get_logger().warning("a chunk of a Zarr array cannot be read", error=str(error)[:1000])
                raise damaged_zarr("has a chunk that its codecs cannot decode, or whose checksum is wrong") from error
            if has_invalid(piece.reshape(-1).view(np.uint8), self.type.dtype):
                raise damaged_zarr(f"has a byte that stands for no value of the type {self.type.dtype.name}")
            yield bounds, piece.view(held)


def boxes_of(shape: Sequence[int], steps: Sequence[int]) -> Iterator[Bounds]:
    """Yields the bounds of the parts into which steps along every axis divide an array, in row-major order."""
    axes = [[(low, min(low + step, n)) for low in range(0, n, step)] for n, step in zip(shape, steps, strict=True)]
    yield from itertools.product(*axes)


def _steps(array_type: ArrayType, chunk_shape: Sequence[int]) -> list[int]:
    """Returns the shape of the parts that are read at once: of several chunks, if they are small."""
    shape, chunks = array_type.shape, 1
    steps = [min(step, n) for step, n in zip(chunk_shape, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        nbytes = math.prod(steps) * array_type.dtype.itemsize
        if not nbytes:
            break
        factor = max(1, min(-(-shape[axis] // steps[axis]), PIECE_BYTES // nbytes, _CHUNKS_AT_ONCE // chunks))
        chunks, steps[axis] = chunks * factor, min(steps[axis] * factor, shape[axis])
    return [max(step, 1) for step in steps]


def _chunk_shape(store: Any) -> tuple[int, ...]:
    return tuple(store.chunk_layout.read_chunk.shape or ())


def _index(bounds: Bounds) -> Any:
    return tuple(slice(low, high) for low, high in bounds)


def _tensorstore() -> ModuleType:
    """Returns the library.

    Raises:
        CallError: FILES_UNAVAILABLE.
    """
    try:
        import tensorstore  # noqa: PLC0415  # with the extra `zarr` only, and 30 MiB
    except ImportError:
        raise CallError(
            Reason.FILES_UNAVAILABLE,
            "this server lacks tensorstore, which reads and writes Zarr files; have the administrator install "
            "the extra zarr, pip install '.[server,zarr]' in a clone of shardcall, or use an npy file",
            field="name",
        ) from None
    return tensorstore


def _system_error(error: Exception) -> OSError:
    """Returns the error of the system that the text of an error of tensorstore names."""
    if isinstance(error, OSError):
        return error
    code = _ERROR_CODE.search(str(error))
    number = int(code[1]) if code else errno.EIO
    return OSError(number, os.strerror(number))

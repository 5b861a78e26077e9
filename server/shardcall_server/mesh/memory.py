"""The memory files that the front end shares with this process, and files on disk that it has opened."""

from __future__ import annotations

import ctypes
import gc
import os

import jax
import numpy as np

from shardcall_core.call_error import CallError
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.wire.shared_memory import map_file
from shardcall_worker.v1 import link_pb2


class MemoryFiles:
    """The mapped memory files and the open files on disk, by the ids that commands use. For the link's thread only."""

    def __init__(self) -> None:
        self._files: dict[int, np.ndarray] = {}
        self._descriptors: dict[int, int] = {}  # of files on disk
        self._refused: dict[int, CallError] = {}  # why files on disk cannot be opened

    def attach(self, memory_id: int, fd: int, nbytes: int) -> None:
        """Maps a memory file; keeps a file on disk open.

        Its pages exist, since the front end wrote or reserved them. They are mapped immediately, so that no page fault
        delays a kernel.

        Args:
            memory_id: the id that commands use.
            fd: the descriptor of the file, closed by this method if it maps the file.
            nbytes: the size of the file; 0 for one on disk.
        """
        if not nbytes:
            self._descriptors[memory_id] = fd
            return
        try:
            self._files[memory_id] = map_file(fd, nbytes, populate=True)
        finally:
            os.close(fd)

    def refuse(self, memory_id: int, error: CallError) -> None:
        """Makes the commands that name a file on disk fail, since this host cannot open it."""
        self._refused[memory_id] = error

    def detach(self, memory_id: int) -> None:
        """Removes a file; it stays mapped as long as an array refers to it. One on disk is closed."""
        self._refused.pop(memory_id, None)
        if (fd := self._descriptors.pop(memory_id, None)) is not None:
            os.close(fd)
            return
        self._files.pop(memory_id, None)
        release_aliased()

    def descriptor(self, memory_id: int) -> int:
        """Returns the descriptor of a file on disk, which is open until `detach`.

        Raises:
            CallError: this host cannot open it.
        """
        if (error := self._refused.get(memory_id)) is not None:
            raise error
        return self._descriptors[memory_id]

    def view(self, array: ArrayType, span: link_pb2.MemorySpan) -> np.ndarray:
        """Returns the array in a span."""
        memory = self._files[span.memory_id]
        return np.ndarray(array.shape, array.dtype, buffer=memory, offset=span.offset)

    def rest(self, span: link_pb2.MemorySpan) -> np.ndarray:
        """Returns the bytes of a file from an offset on; none if no file is named, since this process has no block."""
        if not span.memory_id:
            return np.empty(0, np.uint8)
        return self._files[span.memory_id][span.offset :]


def release_aliased() -> None:
    """Makes JAX release memory that it aliased and no longer needs.

    JAX puts such memory on a list that it empties only in its next placement or launch; a collection of Python's
    youngest objects empties it too, so an idle worker holds nothing.
    """
    gc.collect(0)


def trim() -> None:
    """Returns unused memory to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def clear_jax_caches() -> None:
    """Empties JAX's caches of functions that it has traced."""
    jax.clear_caches()
    gc.collect()

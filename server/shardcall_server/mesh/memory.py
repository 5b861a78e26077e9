"""The memory files that the front end shares with this process."""

from __future__ import annotations

import gc
import os

import numpy as np

from shardcall._src.wire.shared_memory import map_file
from shardcall_server.kernels.layout import ArrayType
from shardcall_worker.v1 import link_pb2


class SharedMemory:
    """What is mapped now, by the ids that commands use. For the link's thread only."""

    def __init__(self) -> None:
        self._files: dict[int, np.ndarray] = {}

    def attach(self, memory_id: int, fd: int, nbytes: int) -> None:
        """Maps a file.

        Its pages are there already (the front end wrote or reserved them); they are mapped at once, so that no
        fault falls into a kernel's time.

        Args:
            memory_id: what commands call it.
            fd: the file; owned and closed here.
            nbytes: its size.
        """
        try:
            self._files[memory_id] = map_file(fd, nbytes, populate=True)
        finally:
            os.close(fd)

    def detach(self, memory_id: int) -> None:
        """Lets go of a file; it stays mapped as long as any array that lies in it."""
        self._files.pop(memory_id, None)
        release_aliased()

    def view(self, array: ArrayType, span: link_pb2.MemorySpan) -> np.ndarray:
        """The array that lies at a place."""
        memory = self._files[span.memory_id]
        return np.ndarray(array.shape, array.dtype, buffer=memory, offset=span.offset)

    def rest(self, span: link_pb2.MemorySpan) -> np.ndarray:
        """The bytes of a file from a place on; none where no file is named, since there is nothing for this process."""
        if not span.memory_id:
            return np.empty(0, np.uint8)
        return self._files[span.memory_id][span.offset :]


def release_aliased() -> None:
    """Makes JAX let go of memory that it aliased and no longer needs.

    It puts such memory on a list which it empties in its next placement or launch; a collection of Python's
    youngest objects empties it too.
    """
    gc.collect(0)

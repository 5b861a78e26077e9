"""Memory that the front end made for one call and this process maps."""

from __future__ import annotations

import mmap
import os

import numpy as np

from shardcall_server.kernels.layout import ArrayType


class MappedRegion:
    """A mapping of a call's region; it lasts as long as any array that lies in it.

    The pages are there already (the front end wrote or reserved them); they are mapped at once, so that no
    fault falls into the kernel's time.

    Args:
        fd: the memory file; owned and closed here.
        nbytes: its size.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        try:
            self._map = mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        finally:
            os.close(fd)

    def view(self, array: ArrayType, offset: int) -> np.ndarray:
        """The array that lies at an offset; keeps the mapping alive."""
        return np.ndarray(array.shape, array.dtype, buffer=self._map, offset=offset)


def inline_view(array: ArrayType, data: bytes) -> np.ndarray:
    """The array that a message's bytes hold."""
    return np.ndarray(array.shape, array.dtype, buffer=data)

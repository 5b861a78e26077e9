"""Files on disk that the workers read and write."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable

import numpy as np


class OpenFile:
    """A file on disk and its users, of which the first makes it; it is closed after the last.

    Args:
        memory_id: the id of the file in commands to the workers.
        fd: its descriptor, which is duplicated.
        path: its path below the folder of all files, by which other hosts open it.
        marker: the name of a file in it, if it is a directory, by which other hosts recognize it, too; empty for none.
        on_gone: called with the id after the last use, so that the workers close the file.

    Attributes:
        inode: its inode number, by which other hosts recognize it.
        is_folder: True for a directory.
        nbytes: 0: the file is not mapped.
        is_written: True if the workers write to it.
    """

    def __init__(
        self,
        memory_id: int,
        fd: int,
        path: str,
        on_gone: Callable[[int], None],
        *,
        is_written: bool = False,
        marker: str = "",
    ) -> None:
        self.memory_id = memory_id
        self.path = path
        self.marker = marker
        self.is_written = is_written
        status = os.fstat(fd)  # here, since a disk that hangs must stop no thread that sends commands
        self.inode = status.st_ino
        self.is_folder = stat.S_ISDIR(status.st_mode)
        self.fd = os.dup(fd)
        self.nbytes = 0
        self._users = 1
        self._on_gone = on_gone
        self._lock = threading.Lock()  # guards `_users`

    def view(self, begin: int, nbytes: int) -> np.ndarray:
        """Raises an error: the file is not mapped, and no other host can have its bytes."""
        raise NotImplementedError(f"bytes {begin} to {begin + nbytes} of a file on disk")

    def acquire(self) -> None:
        """Adds a user; each user releases the file once."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Removes a user; after the last one the file is closed."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        os.close(self.fd)
        self._on_gone(self.memory_id)

"""The private temporary folder of a profile recording."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from shardcall_core.wire.private_files import is_private_folder, make_temporary_folder

_PREFIX = "shardcall_profile_"
_HOST_REPLACEMENT = "mesh."  # JAX puts the host name into file names; clients must not see it
_YOUNG_S = 60.0  # a folder is made a moment before it is locked
_PARENT = ("plugins", "profile")  # JAX makes a folder for each recording in it, named by the time


class ProfileFolder:
    """A new folder, locked until it is removed.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self) -> None:
        self.path = make_temporary_folder(_PREFIX)
        self._lock = _open(self.path)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def files(self) -> list[tuple[str, Path]]:
        """Returns the files: each with its path for clients, relative to the recording's folder, and its real path."""
        parent, host = Path(self.path, *_PARENT), f"{socket.gethostname()}."
        files = []
        for folder, _, names in os.walk(parent):  # follows no links
            for name in sorted(names):
                file = Path(folder, name)
                if stat.S_ISREG(file.lstat().st_mode):
                    public = name.replace(host, _HOST_REPLACEMENT, 1) if name.startswith(host) else name
                    files.append(("/".join(file.with_name(public).relative_to(parent).parts[1:]), file))
        return files

    def remove(self) -> None:
        """Removes the folder and its contents; may be repeated."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def remove_abandoned() -> None:
    """Removes the folders of servers that were killed, which are no longer locked."""
    for path in _abandoned():
        shutil.rmtree(path, ignore_errors=True)


def _abandoned() -> Iterator[str]:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if not is_private_folder(status) or time.time() - status.st_mtime < _YOUNG_S:
                continue
            lock = _open(str(path))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield str(path)
            finally:
                os.close(lock)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

"""The folder that a profile is recorded into: this user's alone, and gone with the recording."""

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

from shardcall._src.wire.private_files import is_private_folder, make_temporary_folder

_PREFIX = "shardcall_profile_"
_INSTEAD_OF_HOST = "mesh."  # JAX names files after the machine, which is nobody's business
_YOUNG_S = 60.0  # a folder is made a moment before it is locked
_RUNS = ("plugins", "profile")  # below it JAX makes a folder a recording, named by the time


class ProfileFolder:
    """A fresh folder, locked for as long as this process has it.

    Attributes:
        path: where it is.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self) -> None:
        self.path = make_temporary_folder(_PREFIX)
        self._lock = _open(self.path)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def files(self) -> list[tuple[str, Path]]:
        """The recording's files: each by its path below the recording's own folder, with slashes, and where it is."""
        runs, host = Path(self.path, *_RUNS), f"{socket.gethostname()}."
        found = []
        for folder, _, names in os.walk(runs):  # follows no links
            for name in sorted(names):
                file = Path(folder, name)
                if stat.S_ISREG(file.lstat().st_mode):
                    told = file.with_name(name.replace(host, _INSTEAD_OF_HOST, 1) if name.startswith(host) else name)
                    found.append(("/".join(told.relative_to(runs).parts[1:]), file))
        return found

    def remove(self) -> None:
        """Removes it with all that is in it; may be repeated."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


def remove_abandoned() -> None:
    """Removes the folders of servers that were killed: nobody holds their locks any more."""
    for path in _abandoned():
        shutil.rmtree(path, ignore_errors=True)


def _abandoned() -> Iterator[str]:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if not is_private_folder(found) or time.time() - found.st_mtime < _YOUNG_S:
                continue
            lock = _open(str(path))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield str(path)
            finally:
                os.close(lock)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

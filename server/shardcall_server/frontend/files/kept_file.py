"""A small file that outlasts the server, in a directory that only this user may write to."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


class KeptFile:
    """A file that is read whole and written whole.

    Args:
        directory: where it is; made where it is missing.
        name: the file's.
        max_bytes: more is not read.
    """

    def __init__(self, directory: Path, name: str, max_bytes: int) -> None:
        self._directory = directory
        self._name = name
        self._max_bytes = max_bytes

    def read(self) -> bytes:
        """What is in it.

        Raises:
            FileNotFoundError: there is none.
            OSError: it cannot be read, or others may write to it or to its directory.
            ValueError: it is no ordinary file, or too large.
        """
        _check_owned(self._directory)
        path = self._directory / self._name
        # Not to wait for a writer, should it be a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(f"{path} is no ordinary file")
            if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                raise PermissionError(f"{self._name} is not this user's alone to write")
            content = file.read(self._max_bytes + 1)
        if len(content) > self._max_bytes:
            raise ValueError(f"{self._name} has more than {self._max_bytes} bytes")
        return content

    def write(self, text: str) -> None:
        """Writes it beside its place and moves it there, so that no reader sees a part.

        Raises:
            OSError: it cannot be written, or others may write to its directory.
        """
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        _check_owned(self._directory)
        fd, path = tempfile.mkstemp(prefix=self._name, dir=self._directory)
        try:
            with os.fdopen(fd, "w") as file:
                file.write(text)
            os.replace(path, self._directory / self._name)
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise


def _check_owned(directory: Path) -> None:
    """Raises PermissionError for a directory that others may write to: what is in it would be their choice."""
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{directory} is not this user's alone to write; see --cache-dir")

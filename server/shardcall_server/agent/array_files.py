"""The folder of the server's files of arrays on the host of an agent."""

from __future__ import annotations

import contextlib
import errno
import os

import structlog

from shardcall_server.link.file_errors import file_error, no_folder, unseen
from shardcall_worker.v1 import host_service_pb2

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # waits for no writer of a FIFO
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ESTALE})


class HostFolder:
    """The folder of the server's files on this host, which opens files for its worker.

    Every part of a path is opened below the one before and without following links, so the front end reaches nothing
    outside the folder.

    Args:
        path: the folder; empty for none.
        host: the name of this host.
    """

    def __init__(self, path: str, host: str) -> None:
        self._path = path
        self._host = host

    def open(self, file: host_service_pb2.OpenFile) -> int:
        """Opens a file that the front end has open, too; returns its descriptor.

        Raises:
            CallError: FILES_UNAVAILABLE, INVALID_PARAMETER.
        """
        if not self._path:
            raise no_folder(self._host)
        try:
            with contextlib.ExitStack() as stack:
                fd = self._opened(file.path.split("/"), _flags(file))
                stack.callback(os.close, fd)
                if os.fstat(fd).st_ino == file.inode and _has(fd, file.marker):
                    stack.pop_all()
                    return fd
        except OSError as error:
            if error.errno not in _ABSENT:
                raise file_error(error) from error
        structlog.get_logger().warning(
            "a file of the server is not in this host's --array-dir", array_dir=self._path, file=file.path
        )
        raise unseen(self._host)

    def _opened(self, parts: list[str], flags: int) -> int:
        fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for number, part in enumerate(parts, 1):
            if part in ("", ".", ".."):
                os.close(fd)
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            try:
                below = os.open(part, flags if number == len(parts) else _FOLDER_FLAGS, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd


def _has(folder: int, name: str) -> bool:
    """Returns whether a directory has a file; True for the empty name. An inode number may be that of another disk."""
    if name:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    return True


def _flags(file: host_service_pb2.OpenFile) -> int:
    if file.is_folder:
        return _FOLDER_FLAGS
    # Only to write, not to read as well: a network file system then sends what was written, and no complete pages.
    return _FILE_FLAGS | (os.O_WRONLY if file.is_written else os.O_RDONLY)

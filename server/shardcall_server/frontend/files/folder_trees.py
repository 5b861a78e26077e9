"""Directories with all that is in them, below descriptors and without following links."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator

from shardcall_server.frontend.files.zarr_metadata import METADATA_NAME
from shardcall_server.link.file_errors import damaged_zarr

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_MAX_DEPTH = 80  # a chunk of an array has a directory for each axis
_MAX_REMOVALS = 1000  # of one directory, to which a worker may still add files
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})
_BLOSC_HEADER_BYTES = 16


def is_folder(name: str, folder: int) -> bool:
    """Returns True for a directory, and for no link to one.

    Raises:
        OSError: there is no such entry.
    """
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)


def tree_bytes(folder: int) -> int:
    """Returns the bytes of the files in a directory and below it."""
    return sum(status.st_size for *_, status in _entries(folder) if stat.S_ISREG(status.st_mode))


def sync_tree(folder: int) -> None:
    """Brings a directory and all that is in it to the disk."""
    for parent, name, status in _entries(folder):
        if stat.S_ISREG(status.st_mode):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        elif stat.S_ISDIR(status.st_mode):  # after what is in it
            with _opened(name, parent) as below:
                os.fsync(below)
    os.fsync(folder)


def check_chunks(folder: int, blosc_bytes: int | None = None, max_bytes: int = 1 << 62) -> None:
    """Checks the files of a Zarr array: they are files and directories alone.

    Args:
        max_bytes: the size of the largest file, which the reader reads as a whole.
        blosc_bytes: the bytes of a chunk whose file has a header of Blosc, which must announce no more: the reader
            allocates what it says. None if there are no such headers.

    Raises:
        CallError: FILE_DAMAGED.
        OSError: a file cannot be read.
    """
    for parent, name, status in _entries(folder):
        if stat.S_ISDIR(status.st_mode):
            continue
        if not stat.S_ISREG(status.st_mode):
            raise damaged_zarr("has a link, or what is neither file nor directory, in its directory")
        if status.st_size > max_bytes and name != METADATA_NAME:
            raise damaged_zarr(f"has a file of {status.st_size:,} bytes, and a chunk has at most {max_bytes:,}")
        if blosc_bytes is not None and name != METADATA_NAME:
            _check_blosc(parent, name, blosc_bytes)


def remove_tree(name: str, folder: int) -> None:
    """Removes a file, a link, or a directory and all that is in it; of Zarr arrays their metadata first.

    So who has read all that he wanted, and finds the metadata still there, has missed nothing.

    Raises:
        OSError: it cannot be removed.
    """
    for attempt in range(_MAX_REMOVALS):
        try:
            return _remove(name, folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or attempt == _MAX_REMOVALS - 1:
                raise
    return None


def exchange(folder: int, name: str, other: str) -> bool:
    """Exchanges the names of two entries of a directory in one step; returns False if the file system cannot.

    Raises:
        OSError: one of them is not there, or the directory cannot be changed.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(folder, os.fsencode(name), folder, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    if (code := ctypes.get_errno()) in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def _opened(name: str, folder: int) -> Iterator[int]:
    fd = os.open(name, FOLDER_FLAGS, dir_fd=folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _entries(folder: int, depth: int = _MAX_DEPTH) -> Iterator[tuple[int, str, os.stat_result]]:
    """Yields the entries below a directory, each with the descriptor of its parent; a directory after its entries."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                if not depth:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                with _opened(name, folder) as below:
                    yield from _entries(below, depth - 1)
            yield folder, name, status


def _remove(name: str, folder: int) -> None:
    if not is_folder(name, folder):
        os.unlink(name, dir_fd=folder)
        return
    with _opened(name, folder) as below:
        for parent, entry, _ in _entries(below):
            if entry == METADATA_NAME:
                with contextlib.suppress(OSError):
                    os.unlink(entry, dir_fd=parent)
        for parent, entry, status in _entries(below):
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(status.st_mode):
                    os.rmdir(entry, dir_fd=parent)
                else:
                    os.unlink(entry, dir_fd=parent)
    os.rmdir(name, dir_fd=folder)


def _check_blosc(folder: int, name: str, limit: int) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        header = os.pread(fd, _BLOSC_HEADER_BYTES, 0)
    finally:
        os.close(fd)
    announced = int.from_bytes(header[4:8], "little")
    if len(header) < _BLOSC_HEADER_BYTES or announced > limit:
        raise damaged_zarr(f"has a chunk that announces {announced:,} bytes, and {limit:,} are expected")

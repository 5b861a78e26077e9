"""Files of arrays below one folder of the server, for each principal in a folder of its name.

Every part of a path is opened below the descriptor of its folder and without following links, so no name and no link
that somebody puts there leads out of the principal's folder. A file is written under a temporary name, which begins
with a dot as no name of a client does, and gets its name when it is complete on the disk. A Zarr array is a directory,
and counts as one file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.locks import lock
from shardcall_core.types.sizes import exact
from shardcall_core.wire.token_fields import PrincipalLimits, no_limits
from shardcall_server.frontend.files.checkpoint_folder import CheckpointFolder
from shardcall_server.frontend.files.folder_trees import (
    FOLDER_FLAGS,
    exchange,
    remove_tree,
    sync_tree,
    tree_bytes,
)
from shardcall_server.frontend.files.npy_header import read_header
from shardcall_server.frontend.files.zarr_metadata import read_metadata
from shardcall_server.link.file_errors import file_error
from shardcall_server.settings import SettingsError

MAX_PARTS = 8
"""The most parts of a name, those between slashes."""

NOBODY = "_"
"""The folder of callers without a principal; no principal has this name."""

_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}"
_NAME = re.compile(rf"{_PART}(?:/{_PART}){{0,{MAX_PARTS - 1}}}")
_NPY, _ZARR = ".npy", ".zarr"
_TEMPORARY = ".saving-"
_ASIDE = ".replaced-"  # before the name of what is replaced, where the file system exchanges no names
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # waits for no writer of a FIFO
_WRITE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXISTING_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})  # or a link, or a socket


class FolderFile(NamedTuple):
    """An open file, or directory of a Zarr array.

    Attributes:
        fd: its descriptor.
        path: its path below the folder of all principals.
    """

    fd: int
    path: str


@dataclass(frozen=True)
class StoredFile:
    """A file of a principal.

    Attributes:
        name: its name.
        nbytes: its size in bytes; of a directory, that of its files.
        modified_s: the time of its last change, in seconds since 1970-01-01 00:00 UTC.
        type: the type of its array; None if it cannot be loaded.
        refusal: why it cannot be loaded; None if it can.
    """

    name: str
    nbytes: int
    modified_s: float
    type: ArrayType | None
    refusal: Reason | None = None


class ArrayFolder:
    """The files of arrays of all principals. Clears up what servers left that were killed while they saved arrays.

    Args:
        path: the folder, which is created if it is missing.
        max_bytes: the limit of the files of one principal, in bytes.
        max_files: the limit of their number.
        limits_of: returns the present limits of a principal in the token file.

    Attributes:
        checkpoints: the checkpoints of arrays with names, which count as files.

    Raises:
        SettingsError: the folder cannot be used.
    """

    def __init__(
        self,
        path: str,
        max_bytes: int,
        max_files: int,
        limits_of: Callable[[str], PrincipalLimits] = no_limits,
    ) -> None:
        self._limits_of = limits_of
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._saving: dict[str, tuple[str, str, int]] = {}  # owner, name and bytes, by the temporary name
        self._lock = lock("the lock of the files of arrays")  # guards `_saving`, and which folders exist
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _walk(self._root, _clear_up)
        except OSError as error:
            raise SettingsError(
                f"setting array_dir is {path!r}, which cannot be used: {error.strerror}; name a folder that the "
                "server's user may write to"
            ) from None
        self.checkpoints = CheckpointFolder(path)

    def close(self) -> None:
        """Closes the folder."""
        self.checkpoints.close()
        os.close(self._root)

    @contextmanager
    def saving(self, owner: str, name: str, nbytes: int) -> Iterator[FolderFile]:
        """Opens a new file, or directory for a Zarr array; after the body it has its name, and is on the disk.

        If the body raises, nothing is left of it.

        Args:
            owner: the principal; empty for none.
            nbytes: the size of the file, or of all files of the directory.

        Raises:
            CallError: INVALID_PARAMETER, FILE_LIMIT, FILES_UNAVAILABLE.
        """
        *folders, leaf = parts_of(name)
        temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
        with _system_errors(), ExitStack() as stack:
            with self._lock:
                free_bytes = self._check_limits(owner, name, nbytes)
                self._saving[temporary] = owner, name, nbytes
                stack.callback(self._saving.pop, temporary, None)
                folder = stack.enter_context(self._opened(owner, folders, creates=True))
                locked = _create(temporary, folder, is_zarr(name))
                stack.callback(os.close, locked)
                fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self.checkpoints.changing():
                self.checkpoints.limit_before(owner, free_bytes)
            try:
                # Opened anew: the worker, which gets this one, does not keep the lock when this process ends.
                fd = os.open(temporary, FOLDER_FLAGS if is_zarr(name) else _EXISTING_FLAGS, dir_fd=folder)
                stack.callback(os.close, fd)
                yield FolderFile(fd, _path(owner, folders, temporary))
                if is_zarr(name):
                    sync_tree(fd)
                else:
                    os.fsync(fd)
                with self._lock:  # so that nobody counts the file twice
                    replaced = _rename(temporary, leaf, folder)
                    del self._saving[temporary]
            except BaseException:
                self._discard(owner, folders, temporary)
                raise
            os.fsync(folder)
            if replaced is not None:
                with contextlib.suppress(OSError):  # the next server that starts removes it
                    remove_tree(replaced, folder)

    @contextmanager
    def opened(self, owner: str, name: str) -> Iterator[FolderFile]:
        """Opens a file, or the directory of a Zarr array, for reading, during the body.

        Args:
            owner: the principal; empty for none.
            name: the name of a file, or with further parts that of an array in a Zarr group.

        Raises:
            CallError: INVALID_PARAMETER, FILE_NOT_FOUND, FILES_UNAVAILABLE.
        """
        *folders, leaf = name.split("/") if _is_in_group(name) else parts_of(name)
        try:
            with self._opened(owner, folders) as folder:
                fd = os.open(leaf, FOLDER_FLAGS if is_zarr(name) else _READ_FLAGS, dir_fd=folder)
        except OSError as error:
            raise (_no_file(name) if error.errno in _ABSENT else file_error(error)) from None
        try:
            if not is_zarr(name) and not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _no_file(name)
            yield FolderFile(fd, _path(owner, folders, leaf))
        finally:
            os.close(fd)

    def describe(self, owner: str, name: str) -> StoredFile:
        """Describes a file; raises as `opened`."""
        with self.opened(owner, name) as file:
            return described(name, file.fd)

    def files(self, owner: str, prefix: str = "") -> list[StoredFile]:
        """Describes the files of a principal whose names begin with a prefix, by name.

        Raises:
            CallError: FILES_UNAVAILABLE.
        """
        names = sorted(name for name in self._sizes(owner) if name.startswith(prefix))
        files = []
        for name in names:
            with contextlib.suppress(CallError):  # it was removed meanwhile
                files.append(self.describe(owner, name))
        return files

    def remove(self, owner: str, name: str) -> bool:
        """Removes a file, and the folders that are empty then; returns whether there was one.

        Raises:
            CallError: INVALID_PARAMETER, FILES_UNAVAILABLE.
        """
        *folders, leaf = parts_of(name)
        try:
            with self._lock, self._opened(owner, folders) as folder:
                if not _has_form(leaf, folder):
                    return False
                temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"  # in one step, and the rest is removed at a start
                os.rename(leaf, temporary, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
                remove_tree(temporary, folder)
                self._prune(owner, folders)
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise file_error(error) from error
        return True

    def _check_limits(self, owner: str, name: str, nbytes: int) -> int:
        """Raises CallError if the files of a principal would exceed a limit; returns the bytes that are left.

        Files that are being saved count beside those that they replace, which stay if the save fails.
        """
        saving = [(other, size) for who, other, size in self._saving.values() if who == owner]
        sizes = self._sizes(owner) | {name: nbytes}
        names = sizes.keys() | {other for other, _ in saving}
        total = sum(sizes.values()) + sum(size for _, size in saving) + self.checkpoints.nbytes(owner)
        free_bytes = self._check_bytes(owner, total, f"the file has {exact(nbytes)}")
        if len(names) > self._max_files:
            raise CallError(
                Reason.FILE_LIMIT,
                f"this principal has {self._max_files:,} files, and may have no more; remove files by "
                "client.remove_file, or start the server with a larger --max-files",
                field="name",
                metadata={"files": str(len(names)), "limit": str(self._max_files)},
            )
        return free_bytes

    def used_bytes(self, owner: str) -> int:
        """Returns the bytes of the files of a principal, those that are being saved included.

        Raises:
            CallError: FILES_UNAVAILABLE.
        """
        sizes = self._sizes(owner)  # without the lock: there may be many
        with self._lock:
            saving = [size for who, _, size in self._saving.values() if who == owner]
        return sum(sizes.values()) + sum(saving)

    def check_checkpoint(self, owner: str, nbytes: int, used_bytes: int) -> int:
        """Checks that a principal may have a checkpoint of so many bytes beside its files; returns the bytes left.

        Raises:
            CallError: FILE_LIMIT.
        """
        return self._check_bytes(owner, used_bytes + nbytes, f"the checkpoint has {exact(nbytes)}")

    def _check_bytes(self, owner: str, total: int, what: str) -> int:
        """Raises CallError if the files of a principal would have more bytes than are allowed; returns those left."""
        max_bytes, remedy = self._max_bytes, "start the server with a larger --max-file-bytes"
        limit = self._limits_of(owner).max_file_bytes
        if limit is not None and limit < max_bytes:
            max_bytes, remedy = limit, "have the administrator raise max_file_bytes in the token file"
        if total > max_bytes:
            raise CallError(
                Reason.FILE_LIMIT,
                f"{what}, with which the files of this principal would have {exact(total)}, and {exact(max_bytes)} are "
                f"allowed; remove files by client.remove_file, or {remedy}",
                field="name",
                metadata={"bytes": str(total), "limit": str(max_bytes)},
            )
        return max_bytes - total

    def _sizes(self, owner: str) -> dict[str, int]:
        """Returns the sizes of the files of a principal by their names."""
        sizes: dict[str, int] = {}

        def add(folder: int, path: str, leaf: str) -> None:
            if _is_name(name := path + leaf):
                with contextlib.suppress(FileNotFoundError):
                    if _has_form(leaf, folder):
                        sizes[name] = _entry_bytes(leaf, folder)

        try:
            with self._opened(owner, ()) as folder:
                _walk(folder, add)
        except FileNotFoundError:  # nothing was saved yet
            pass
        except OSError as error:
            raise file_error(error) from error
        return sizes

    @contextmanager
    def _opened(self, owner: str, folders: Sequence[str], *, creates: bool = False) -> Iterator[int]:
        """Opens a folder of a principal, during the body.

        Raises:
            OSError: a part of the path is missing, or is no folder.
        """
        with ExitStack() as stack:
            folder = self._root
            for name in _parts(owner, folders):
                if creates:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=folder)
                        os.fsync(folder)
                folder = os.open(name, FOLDER_FLAGS, dir_fd=folder)
                stack.callback(os.close, folder)
            yield folder

    def _discard(self, owner: str, folders: Sequence[str], temporary: str) -> None:
        """Removes a temporary file or directory, and the folders that are empty then."""
        with contextlib.suppress(OSError), self._lock, self._opened(owner, folders) as folder:
            remove_tree(temporary, folder)
            self._prune(owner, folders)

    def _prune(self, owner: str, folders: Sequence[str]) -> None:
        """Removes a folder of a principal and those above it, up to one that is not empty."""
        with contextlib.suppress(OSError):
            for depth in range(len(folders), 0, -1):
                with self._opened(owner, folders[: depth - 1]) as parent:
                    os.rmdir(folders[depth - 1], dir_fd=parent)


def _parts(owner: str, folders: Sequence[str]) -> list[str]:
    return [owner or NOBODY, *folders]


def _path(owner: str, folders: Sequence[str], leaf: str) -> str:
    return "/".join([*_parts(owner, folders), leaf])


def parts_of(name: str) -> list[str]:
    """Returns the parts of the name of a file, those between slashes.

    Raises:
        CallError: INVALID_PARAMETER.
    """
    if not _is_name(name):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"the name of the file is {shorten(name)!r}; give a path such as runs/a.npy: at most {MAX_PARTS} parts of "
            "1 to 64 ASCII letters, digits, '.', '_' and '-', none with a dot first, and '.npy' or '.zarr' at the end "
            "of the last one only",
            field="name",
            metadata={"name": shorten(name)},
        )
    return name.split("/")


def is_zarr(name: str) -> bool:
    """Returns True for the name of a Zarr array, or of one in a group, and False for that of an npy file."""
    return name.endswith(_ZARR) or f"{_ZARR}/" in name


def _is_name(name: str) -> bool:
    if len(name) > MAX_PARTS * 65 or _NAME.fullmatch(name) is None or not name.endswith((_NPY, _ZARR)):
        return False
    return not any(folder.endswith((_NPY, _ZARR)) for folder in name.split("/")[:-1])


def _is_in_group(name: str) -> bool:
    """Returns True for the name of a Zarr group with the names of an array in it: ``runs/a.zarr/u``."""
    if len(name) > MAX_PARTS * 65 or _NAME.fullmatch(name) is None:
        return False
    group, _, inside = name.partition(f"{_ZARR}/")
    return (
        _is_name(group + _ZARR) and bool(inside) and not any(part.endswith((_NPY, _ZARR)) for part in inside.split("/"))
    )


def _has_form(leaf: str, folder: int) -> bool:
    """Returns True for a regular file, and for a directory where the name is that of a Zarr array.

    Raises:
        OSError: there is no such entry.
    """
    mode = os.stat(leaf, dir_fd=folder, follow_symlinks=False).st_mode
    return stat.S_ISDIR(mode) if is_zarr(leaf) else stat.S_ISREG(mode)


def _entry_bytes(leaf: str, folder: int) -> int:
    """Returns the size of a file, or of all files of a Zarr array.

    Raises:
        OSError: there is no such entry.
    """
    if not is_zarr(leaf):
        return os.stat(leaf, dir_fd=folder, follow_symlinks=False).st_size
    fd = os.open(leaf, FOLDER_FLAGS, dir_fd=folder)
    try:
        return tree_bytes(fd)
    finally:
        os.close(fd)


def _create(name: str, folder: int, as_folder: bool) -> int:
    """Creates a file or a directory, and returns its descriptor."""
    if not as_folder:
        return os.open(name, _WRITE_FLAGS, 0o600, dir_fd=folder)
    os.mkdir(name, 0o700, dir_fd=folder)
    return os.open(name, FOLDER_FLAGS, dir_fd=folder)


def _rename(temporary: str, leaf: str, folder: int) -> str | None:
    """Gives a complete file or directory its name; returns the name that what it replaced has then, if any is left.

    A directory is exchanged with the one before in one step. Where the file system cannot do that, the one before is
    first put aside, and the next server that starts brings it back if this one ends in between.
    """
    if not is_zarr(leaf):
        os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        return None
    try:
        if exchange(folder, temporary, leaf):
            return temporary
        aside = f"{_ASIDE}{secrets.token_hex(8)}-{leaf}"
        locked = os.open(leaf, _READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        return None
    try:
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no server that starts meanwhile brings it back
        os.rename(leaf, aside, src_dir_fd=folder, dst_dir_fd=folder)
        try:
            os.rename(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.rename(aside, leaf, src_dir_fd=folder, dst_dir_fd=folder)
            raise
    finally:
        os.close(locked)
    return aside


def _no_file(name: str) -> CallError:
    return CallError(
        Reason.FILE_NOT_FOUND,
        f"no file has the name {shorten(name)!r}; client.files() lists the names",
        field="name",
        metadata={"name": shorten(name)},
    )


def described(name: str, fd: int) -> StoredFile:
    """Describes an open file or directory.

    Raises:
        CallError: FILES_UNAVAILABLE.
    """
    with _system_errors():
        status = os.fstat(fd)
        nbytes = tree_bytes(fd) if is_zarr(name) else status.st_size
    try:
        array_type = read_metadata(fd).type if is_zarr(name) else read_header(fd).type
    except CallError as error:
        return StoredFile(name, nbytes, status.st_mtime, None, error.reason)
    return StoredFile(name, nbytes, status.st_mtime, array_type)


def _walk(folder: int, on_entry: Callable[[int, str, str], None], path: str = "", depth: int = MAX_PARTS) -> None:
    """Calls a function for the regular files below a folder, and the directories of Zarr arrays; follows no links.

    Args:
        folder: its descriptor.
        on_entry: called with the descriptor of the folder of a file, its path from the first folder and the file's
            name.
        path: the path from the first folder, empty or with a slash at its end.
        depth: the number of further levels.
    """
    with os.scandir(folder) as entries:
        there = [
            (entry.name, entry.is_dir(follow_symlinks=False))
            for entry in entries
            if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
        ]
    for name, is_directory in there:
        if not is_directory or is_zarr(name) or name.startswith((_TEMPORARY, _ASIDE)):
            on_entry(folder, path, name)
        elif depth:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # it was removed meanwhile
                below = os.open(name, FOLDER_FLAGS, dir_fd=folder)
                try:
                    _walk(below, on_entry, f"{path}{name}/", depth - 1)
                finally:
                    os.close(below)


def _clear_up(folder: int, _: str, name: str) -> None:
    """Removes a temporary file or directory that no server has locked, and brings back what was put aside."""
    if not name.startswith((_TEMPORARY, _ASIDE)):
        return
    with contextlib.suppress(OSError):
        fd = os.open(name, _READ_FLAGS, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if name.startswith(_ASIDE):
                _bring_back(folder, name)
            else:
                remove_tree(name, folder)
        finally:
            os.close(fd)


def _bring_back(folder: int, aside: str) -> None:
    """Gives a directory that was put aside its name again, unless what should replace it has the name."""
    leaf = aside.removeprefix(_ASIDE).partition("-")[2]
    try:
        os.stat(leaf, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(aside, leaf, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    else:
        remove_tree(aside, folder)


@contextmanager
def _system_errors() -> Iterator[None]:
    """Converts errors of the system to a `CallError`."""
    try:
        yield
    except OSError as error:
        raise file_error(error) from error

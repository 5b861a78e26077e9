"""Files and folders that no other user of the machine may read, change or replace.

Checks are made on open descriptors: what was checked is what is used, whatever is put in its place meanwhile.

A *guarded* folder belongs to this user or to root, and no other user may write to it. A *private* folder belongs to
this user, has mode 0700 and is no symbolic link. Hard links need no rule: a file's owner and mode are those of all its
names.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
from contextlib import suppress

_MAX_LINKS = 40  # as in Linux
_IS_FOLDER = getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # for the writer of a FIFO
_TRAVERSE = getattr(os, "O_PATH", os.O_RDONLY) | _IS_FOLDER  # a folder that can be entered and not listed will do

StrPath = str | os.PathLike[str]


class PrivateFileError(ValueError):
    """A file or folder of the wrong type, or that other users may use; the message says what to do."""

    @property
    def strerror(self) -> str:
        """The message, as an OSError has it."""
        return str(self)


def read_file(path: StrPath, max_bytes: int, *, is_secret: bool = True, allow_sticky: bool = False) -> bytes:
    """Reads a file that no other user can change or replace.

    Follows symbolic links that belong to this user or to root. Each must be in a guarded folder, and so must the file.

    Args:
        path: the path of the file.
        is_secret: refuse a file that other users can read, or of another user; else root's is allowed.
        allow_sticky: treat folders where users may remove only their own files, such as ``/tmp``, as guarded.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: it cannot be read.
        PrivateFileError: other users may use the file or its folder, or it is not a regular file, or is too large.
    """
    with open(_open_file(os.fspath(path), is_secret, allow_sticky), "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise PrivateFileError(f"{path} has more than {max_bytes} bytes, the most allowed; remove what is not needed")
    return data


def write_file(path: StrPath, data: bytes, *, mode: int = 0o600, replace: bool = True, sync: bool = False) -> bool:
    """Writes a file by `write_entry` into a guarded folder, which is made with mode 0700 where it is missing.

    Raises:
        OSError: it cannot be written.
        PrivateFileError: other users may write to the folder.
    """
    parent, name = os.path.split(os.path.abspath(path))
    make_folders(parent)
    folder = open_guarded_folder(parent)
    try:
        return write_entry(folder, name, data, mode=mode, replace=replace, sync=sync)
    finally:
        os.close(folder)


def open_entry(folder: int, name: str, path: StrPath, *, is_secret: bool = False) -> int:
    """Opens a file in an open folder for reading; follows no symbolic link and waits for no writer of a FIFO.

    Args:
        folder: the folder's descriptor.
        name: the file's name there.
        path: the name of the file in errors.
        is_secret: as for `read_file`.

    Raises:
        OSError: it cannot be opened.
        PrivateFileError: it is not a regular file, or other users may use it.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | _NO_LINK | _NO_WAIT, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise PrivateFileError(f"{path} is a symbolic link, and must be a regular file; remove it") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PrivateFileError(f"{path} is not a regular file, and must be one; remove it, or use another")
    return _checked(descriptor, str(path), path, "600" if is_secret else "go-w")


def open_shared_file(path: StrPath) -> int:
    """Opens a file of this user alone for reading and writing; follows no symbolic link and waits for nobody.

    Raises:
        OSError: it cannot be opened.
        PrivateFileError: it is not a regular file, or other users may use it.
    """
    descriptor = os.open(path, os.O_RDWR | _NO_LINK | _NO_WAIT)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PrivateFileError(f"{path} is not a regular file, and must be one; use another")
    return _checked(descriptor, str(path), path, "600")


def write_entry(
    folder: int, name: str, data: bytes, *, mode: int = 0o600, replace: bool = True, sync: bool = False
) -> bool:
    """Writes a temporary file and renames it, so that nobody reads a part of it.

    Args:
        folder: the folder's descriptor.
        name: the file's name there.
        replace: replace a file or symbolic link of that name; neither is written through.
        sync: write the content to disk before the file appears.

    Returns:
        True if it was written; False if there is a file that must not be replaced.
    """
    part = f".{secrets.token_hex(16)}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(descriptor)
        if replace:
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder)  # of several writers at once, one succeeds
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):  # it was moved
            os.unlink(part, dir_fd=folder)
    return True


def open_guarded_folder(path: StrPath, *, allow_sticky: bool = False, contains: StrPath = "") -> int:
    """Opens a guarded folder for use as ``dir_fd``; follows symbolic links to it.

    Args:
        path: the path of the folder.
        allow_sticky: as for `read_file`.
        contains: the file that errors name as the one in the folder.

    Raises:
        OSError: it cannot be opened.
        PrivateFileError: other users may write to it.
    """
    name = f"the folder {path} of {contains}" if contains else f"the folder {path}"
    return _checked(os.open(path, _TRAVERSE), name, path, "go-w", allow_sticky)


def open_private_folder(path: StrPath) -> int:
    """Opens a private folder, and makes it and those above it where they are missing.

    The folder above must be guarded, or sticky as ``/tmp`` is.

    Raises:
        OSError: it cannot be made or opened.
        PrivateFileError: it is a symbolic link or no folder, or other users may enter or replace it.
    """
    parent, name = os.path.split(os.path.abspath(path))
    make_folders(parent)
    above = open_guarded_folder(parent, allow_sticky=True, contains=path)
    try:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
        descriptor = os.open(name, os.O_RDONLY | _IS_FOLDER | _NO_LINK, dir_fd=above)
    except NotADirectoryError:  # Linux reports a symbolic link so, too
        raise PrivateFileError(f"{path} is a symbolic link or a file, and must be a folder; move it away") from None
    finally:
        os.close(above)
    return _checked(descriptor, str(path), path, "700")


def make_folders(path: StrPath) -> None:
    """Makes a folder and those above it where they are missing, each with mode 0700 whatever the umask.

    Raises:
        OSError: one cannot be made.
    """
    missing = os.path.abspath(path)
    paths = []
    while not os.path.isdir(missing):
        paths.append(missing)
        missing = os.path.dirname(missing)
    for folder in reversed(paths):  # `os.makedirs` has the mode for the last one only
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise


def make_temporary_folder(prefix: str, parent: str | None = None) -> str:
    """Makes a private folder and returns its path.

    Args:
        prefix: the beginning of its name.
        parent: the folder in which it is made; None for the system's temporary one.

    Raises:
        OSError: it cannot be made, or the file system does not keep owners and modes.
    """
    path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    if not is_private_folder(os.lstat(path)):
        os.rmdir(path)
        raise PermissionError(errno.EPERM, "the file system does not keep a folder of this user with mode 0700")
    return path


def is_private_folder(status: os.stat_result) -> bool:
    """Returns True for the status of a private folder; links must not have been followed."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and status.st_mode & 0o777 == 0o700


def _open_file(path: str, is_secret: bool, allow_sticky: bool) -> int:
    if not hasattr(os, "geteuid"):  # a system without such owners and modes
        return os.open(path, os.O_RDONLY)
    target = path
    for _ in range(_MAX_LINKS):
        parent, name = os.path.split(target)
        folder = open_guarded_folder(parent or ".", allow_sticky=allow_sticky, contains=path)
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISLNK(status.st_mode):
                return open_entry(folder, name, path, is_secret=is_secret)
            _check_owner(status, f"the symbolic link {target}", is_roots_allowed=True)
            target = os.path.join(parent, os.readlink(name, dir_fd=folder))
        finally:
            os.close(folder)
    raise PrivateFileError(f"{path} leads through more than {_MAX_LINKS} symbolic links; give the path of the file")


def _checked(descriptor: int, name: str, path: StrPath, allowed: str, allow_sticky: bool = False) -> int:
    """Returns the descriptor of a file or folder whose mode chmod would leave as it is; closes others and raises."""
    try:
        status = os.fstat(descriptor)
        _check_owner(status, name, is_roots_allowed=allowed == "go-w")
        deed, bits = ("change", 0o022) if allowed == "go-w" else ("read or change", 0o077)
        if status.st_mode & bits and not (allow_sticky and status.st_mode & stat.S_ISVTX):
            raise PrivateFileError(
                f"{name} has mode {stat.S_IMODE(status.st_mode):04o} and must not let other users {deed} it; use "
                f"another, or replace what they had access to and run: chmod {allowed} {path}"
            )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_owner(status: os.stat_result, name: str, *, is_roots_allowed: bool) -> None:
    if status.st_uid != os.geteuid() and not (is_roots_allowed and status.st_uid == 0):
        raise PrivateFileError(
            f"{name} belongs to user {status.st_uid}, who can change it, and must belong to user {os.geteuid()}"
            f"{' or root' * is_roots_allowed}; use one of your own"
        )

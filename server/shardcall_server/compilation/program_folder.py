"""A folder for compiled programs that is this user's alone: whoever writes there has this process run what he wrote."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

FOLDER_NAME = "programs"
_NOT_OURS_MODE = 0o077
_WRITABLE_BY_OTHERS = 0o022


class FolderRefusedError(Exception):
    """A folder that others may write to or look into, or that is none: which, why and what to do."""


def own_program_dir(cache_dir: str) -> str:
    """The folder of programs below that of all that outlasts a server, looked at now rather than by the worker.

    Args:
        cache_dir: the folder above; empty for none.

    Raises:
        FolderRefusedError: it is not this user's alone.
    """
    if not cache_dir:
        return ""
    folder = Path(cache_dir).absolute() / FOLDER_NAME
    with contextlib.suppress(OSError):  # such as a file system that is read only: the worker says so, and tries again
        os.close(open_folder(folder))
    return str(folder)


def open_folder(path: Path) -> int:
    """Opens a folder that is this user's alone, and makes it where it is missing.

    What was looked at is what the descriptor names, whatever is put in its place later.

    Args:
        path: the folder; the one that it lies in is made too, one level up.

    Returns:
        Its descriptor, to be closed.

    Raises:
        FolderRefusedError: it is a symbolic link or no folder, another's, or open to others.
        OSError: it cannot be made or opened.
    """
    _make(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:  # Linux says so of a link too
        raise FolderRefusedError(f"{path} is not a folder of its own; move it away, or {_CHOOSE}") from None
    try:
        _check(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


_CHOOSE = "choose another place with --cache-dir"


def _make(path: Path) -> None:
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    above = path.parent.stat()
    if above.st_uid not in {0, os.geteuid()} or (above.st_mode & _WRITABLE_BY_OTHERS and not above.st_mode & 0o1000):
        raise FolderRefusedError(
            f"others may write to {path.parent}, and compiled programs are kept below it; "
            f"make it yours with chown and chmod 700, or {_CHOOSE}"
        )
    if not os.path.lexists(path):
        path.mkdir(mode=0o700, exist_ok=True)


def _check(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise FolderRefusedError(
            f"{path} belongs to user {found.st_uid} and this server is user {os.geteuid()}; "
            f"what lies there would be run as yours: {_CHOOSE}"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & _NOT_OURS_MODE:
        raise FolderRefusedError(
            f"{path} has mode {mode:04o} and must have 0700, since what lies there is run; "
            f"remove it if others may have written there, or else chmod 700 it, or {_CHOOSE}"
        )

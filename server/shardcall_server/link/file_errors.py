"""Errors of files of arrays, which the front end opens and the worker reads and writes."""

from __future__ import annotations

import errno

from shardcall_core.call_error import CallError, Reason, shorten

_OTHER = frozenset({errno.EISDIR, errno.ENOTDIR, errno.ELOOP})
_THE_FILE = "the file "  # with which errors of a file begin
_HOST = "host"  # of the metadata
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def file_error(error: OSError) -> CallError:
    """Returns the error of a file operation that the system refused; it names no path of the server."""
    if error.errno in _FULL:
        return CallError(
            Reason.FILE_LIMIT,
            f"the disk of the server's files takes no more ({error.strerror}), and nothing was saved; remove files by "
            "client.remove_file, or ask the administrator for space",
            field="name",
        )
    if error.errno in _OTHER:
        return CallError(
            Reason.INVALID_PARAMETER,
            "the name leads to what is no file, or through what is no folder; use another name",
            field="name",
        )
    return CallError(
        Reason.FILES_UNAVAILABLE,
        f"the folder of the server's files cannot be used: {error.strerror}; ask the administrator to see to the "
        "folder of --array-dir",
        field="name",
    )


def unseen(host: str) -> CallError:
    """Returns the error of a host whose folder has not the file that the front end has opened.

    Args:
        host: the name of the host.
    """
    return _of_host(
        host,
        f"the host {host} does not see the files of the server: its --array-dir has another content; mount the folder "
        "of the server's --array-dir on every host, and start the agents with --array-dir and its path there",
    )


def no_folder(host: str) -> CallError:
    """Returns the error of a host that was started without a folder of files."""
    return _of_host(
        host,
        f"the host {host} does not see the files of the server: its agent has no --array-dir; mount the folder of the "
        "server's --array-dir on that host, and start its agent with --array-dir and its path there",
    )


def is_unseen(error: CallError) -> bool:
    """Returns whether a host does not see a file, of which another may have the name meanwhile."""
    return _HOST in error.metadata


def _of_host(host: str, message: str) -> CallError:
    return CallError(Reason.FILES_UNAVAILABLE, message, field="name", metadata={_HOST: host})


def damaged(why: str) -> CallError:
    """Returns the error of a file that is no complete npy file.

    Args:
        why: what is wrong with it, as the end of a sentence that begins with "the file".
    """
    return CallError(
        Reason.FILE_DAMAGED,
        f"the file {why}, so it is no complete npy file of an array; save the array again, or remove the file",
        field="name",
    )


def damaged_zarr(why: str) -> CallError:
    """Returns the error of a directory that is no Zarr array that the server reads.

    Args:
        why: what is wrong with it, as the end of a sentence that begins with "the file".
    """
    return CallError(
        Reason.FILE_DAMAGED,
        f"the file {why}, so the server does not load it; write the array again as Zarr version 3, or remove the file",
        field="name",
    )


def naming(error: CallError, name: str) -> CallError:
    """Returns the error of a file with the name of the file, which who reads it does not know."""
    what = f"the file {shorten(name)!r}"
    if error.message.startswith(_THE_FILE):
        message = f"{what} {error.message.removeprefix(_THE_FILE)}"
    elif error.reason is Reason.INVALID_SHAPE and error.field == "name":
        message = f"{what}: {error.message}"
    else:
        return error
    return CallError(error.reason, message, field=error.field, metadata=error.metadata)


def replaced() -> CallError:
    """Returns the error of a directory that was replaced or removed while it was read."""
    return CallError(
        Reason.FILE_NOT_FOUND, "the file was replaced or removed while it was read; load it again", field="name"
    )

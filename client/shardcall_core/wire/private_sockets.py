"""Unix sockets in folders that only one user may enter."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Iterator

from shardcall_core.wire.private_files import is_private_folder

PREFIX = "shardcall-"
"""The prefix of such a folder's name."""

_PEER = struct.Struct("iII")  # struct ucred: pid, uid, gid


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Returns the process id and user id of a Unix socket's peer at the time of the connection."""
    pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(pid), int(uid)


def usual_parents() -> Iterator[str]:
    """Yields the parents of such folders: the user's runtime directory, then the temporary ones."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError):
        if os.path.isabs(runtime) and is_private_folder(os.stat(runtime)):  # another user could replace the folder
            yield runtime
    with contextlib.suppress(OSError):
        yield tempfile.gettempdir()
    yield "/tmp"  # noqa: S108  # if the temporary directory has too long a path; folders made there are private


def user_folders() -> list[str]:
    """Returns the folders of this user's servers, the newest first."""
    folders: dict[str, int] = {}
    for parent in usual_parents():
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            for entry in entries:
                if entry.name.startswith(PREFIX) and is_private_folder(state := entry.stat(follow_symlinks=False)):
                    folders[entry.path] = state.st_mtime_ns
    return sorted(folders, key=folders.__getitem__, reverse=True)

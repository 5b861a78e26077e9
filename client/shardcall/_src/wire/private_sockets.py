"""Unix sockets in folders that one user alone may enter."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Iterator

from shardcall._src.wire.private_files import is_private_folder

PREFIX = "shardcall-"
"""The beginning of such a folder's name."""

_PEER = struct.Struct("iII")  # struct ucred: pid, uid, gid


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket, as they were when it was connected."""
    pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(pid), int(uid)


def usual_parents() -> Iterator[str]:
    """Yields the parents of such folders: the user's runtime directory, then the temporary ones."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError):
        if os.path.isabs(runtime) and is_private_folder(os.stat(runtime)):  # another's could be swapped under us
            yield runtime
    with contextlib.suppress(OSError):
        yield tempfile.gettempdir()
    yield "/tmp"  # noqa: S108  # for a temporary directory whose path is too long; what is made there is ours alone


def own_folders() -> list[str]:
    """The folders of this user's servers, the newest first; those of other users are left out."""
    found: dict[str, int] = {}
    for parent in usual_parents():
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            for entry in entries:
                if entry.name.startswith(PREFIX) and is_private_folder(state := entry.stat(follow_symlinks=False)):
                    found[entry.path] = state.st_mtime_ns
    return sorted(found, key=found.__getitem__, reverse=True)

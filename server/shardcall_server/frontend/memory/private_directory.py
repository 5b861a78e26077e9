"""A directory for a socket that only processes of the server's own user may reach."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PEER = struct.Struct("iII")  # struct ucred: pid, uid, gid
_PREFIX = "shardcall-"
_SOCKET_NAME = "segments"
_MAX_PATH_BYTES = 107  # of `sun_path`, its closing zero left out
_STALE_AFTER_S = 60.0  # a server that starts has bound its socket a moment before it listens


class PrivateDirectory:
    """A fresh directory that only this user may enter, for one socket.

    Args:
        parent: where it is made.

    Attributes:
        socket_path: where the socket goes.

    Raises:
        OSError: it cannot be made there, or is not this user's alone, or no socket could have its path.
    """

    def __init__(self, parent: str) -> None:
        self._path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self.socket_path = str(self._path / _SOCKET_NAME)
        try:
            found = self._path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o777 != 0o700:
                raise OSError("a directory made there is not this user's alone")
            encoded = os.fsencode(self.socket_path)
            # Clients are told the path as text.
            if len(encoded) > _MAX_PATH_BYTES or self.socket_path.encode(errors="replace") != encoded:
                raise OSError("its path is too long for a socket's address, or is not text")
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Removes the socket and the directory."""
        with contextlib.suppress(OSError):  # somebody cleaned up, or the file system has become read-only
            os.unlink(self.socket_path)
        with contextlib.suppress(OSError):
            os.rmdir(self._path)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket, as they were when it was connected."""
    pid, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(pid), int(uid)


def usual_parents() -> Iterator[str]:
    """Where such a directory may be, the best first: the user's runtime directory, then the temporary ones."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    with contextlib.suppress(OSError):
        if os.path.isabs(runtime) and os.stat(runtime).st_uid == os.geteuid():  # another's could be swapped under us
            yield runtime
    with contextlib.suppress(OSError):
        yield tempfile.gettempdir()
    yield "/tmp"  # noqa: S108  # for a temporary directory whose path is too long; what is made there is ours alone


def remove_stale(parent: str) -> None:
    """Removes the directories of servers that were killed: nobody listens there any more."""
    with contextlib.suppress(OSError):
        for path in Path(parent).glob(f"{_PREFIX}*"):
            found = path.lstat()
            if (
                stat.S_ISDIR(found.st_mode)
                and found.st_uid == os.geteuid()
                and time.time() - found.st_mtime > _STALE_AFTER_S
                and not _is_served(path / _SOCKET_NAME)
            ):
                (path / _SOCKET_NAME).unlink(missing_ok=True)
                path.rmdir()


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return path.exists() and not path.is_socket()
        except OSError:
            return True
    return True

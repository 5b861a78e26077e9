"""A directory of Unix sockets that only processes of the server's user can reach."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from pathlib import Path

from shardcall_core.wire.private_files import is_private_folder, make_temporary_folder
from shardcall_core.wire.private_sockets import PREFIX

_SOCKET_NAME = "segments"
_MAX_PATH_BYTES = 107  # of `sun_path`, its closing zero left out
_STALE_AFTER_S = 60.0  # a server that starts binds its socket a moment before it listens


class PrivateDirectory:
    """A new directory that only this user may enter.

    Args:
        parent: the folder in which it is made.
        longest_name: the length of the longest name of a socket in it.

    Attributes:
        path: the path of the directory.
        socket_path: the path of its socket, if there is only one.

    Raises:
        OSError: it cannot be made there, other users can enter it, or its path is too long for sockets.
    """

    def __init__(self, parent: str, longest_name: int = len(_SOCKET_NAME)) -> None:
        self.path = make_temporary_folder(PREFIX, parent)
        self.socket_path = os.path.join(self.path, _SOCKET_NAME)
        try:
            encoded = os.fsencode(self.path)
            # Clients get the path as text.
            if len(encoded) + 1 + longest_name > _MAX_PATH_BYTES or self.path.encode(errors="replace") != encoded:
                raise OSError("its path is too long for a socket's address, or is not text")
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Removes the directory and the sockets in it."""
        shutil.rmtree(self.path, ignore_errors=True)  # it may be gone, or the file system read-only


def remove_stale(parent: str) -> None:
    """Removes the directories of servers that were killed, in which no socket accepts connections."""
    with contextlib.suppress(OSError):
        for path in Path(parent).glob(f"{PREFIX}*"):
            status = path.lstat()
            old = time.time() - status.st_mtime > _STALE_AFTER_S
            if is_private_folder(status) and old and not any(map(_is_served, path.iterdir())):
                shutil.rmtree(path, ignore_errors=True)


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return path.exists() and not path.is_socket()
        except OSError:
            return True
    return True

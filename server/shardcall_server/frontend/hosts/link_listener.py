"""A Unix socket through which one agent of this host gives its worker a link that can share memory."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
from pathlib import Path

from shardcall._src.wire.private_sockets import peer_of, usual_parents
from shardcall_server.frontend.files.private_directory import PrivateDirectory

TICKET_BYTES = 32
_PATIENCE_S = 1.0  # an agent says that it has come when it has sent its ticket


class LinkListener:
    """Listens in a directory that only this user may enter, for one connection.

    Raises:
        OSError: there can be no socket.
    """

    def __init__(self) -> None:
        self.ticket = secrets.token_bytes(TICKET_BYTES)
        self._directory = _directory()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(self.path)
            os.chmod(self.path, 0o600)
            self._listener.listen(1)
            self._listener.settimeout(_PATIENCE_S)
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """The socket's."""
        return self._directory.socket_path

    def open(self, worker_pid: int) -> socket.socket:
        """The connection of the agent that brought the ticket, whose child the worker is.

        Raises:
            OSError: nobody came, or somebody else.
        """
        accepted, _ = self._listener.accept()
        try:
            accepted.settimeout(_PATIENCE_S)
            pid, uid = peer_of(accepted)
            brought = accepted.recv(TICKET_BYTES, socket.MSG_WAITALL)
            is_agent = pid != 0 and _parent(worker_pid) == pid  # 0 is a process that cannot be seen from here
            if uid != os.geteuid() or not hmac.compare_digest(brought, self.ticket) or not is_agent:
                raise PermissionError("what came was not the agent")
            accepted.settimeout(None)
        except BaseException:
            accepted.close()
            raise
        return accepted

    def close(self) -> None:
        """Removes the socket."""
        self._listener.close()
        self._directory.remove()


def _directory() -> PrivateDirectory:
    reasons = []
    for parent in usual_parents():
        try:
            return PrivateDirectory(parent)
        except OSError as error:
            reasons.append(error)
    raise reasons[0]


def _parent(pid: int) -> int:
    """The process that started another, as this process sees both; 0 where it does not see them."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0

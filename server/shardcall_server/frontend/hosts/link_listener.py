"""Unix socket through which an agent of this host gives its worker a link that can share memory."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import socket
from pathlib import Path

from shardcall_core.wire.private_sockets import peer_of, usual_parents
from shardcall_server.frontend.files.private_directory import PrivateDirectory

TICKET_BYTES = 32
_TIMEOUT_S = 1.0  # an agent reports that it has connected after it has sent its ticket


class LinkListener:
    """Listens for one connection, in a directory that only this user may enter.

    Raises:
        OSError: the socket cannot be created.
    """

    def __init__(self) -> None:
        self.ticket = secrets.token_bytes(TICKET_BYTES)
        self._directory = _directory()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(self.path)
            os.chmod(self.path, 0o600)
            self._listener.listen(1)
            self._listener.settimeout(_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> str:
        """The path of the socket."""
        return self._directory.socket_path

    def open(self, worker_pid: int) -> socket.socket:
        """Accepts the connection of the agent that sends the ticket and is the parent of the worker.

        Raises:
            OSError: no process connected, or another one.
        """
        accepted, _ = self._listener.accept()
        try:
            accepted.settimeout(_TIMEOUT_S)
            pid, uid = peer_of(accepted)
            ticket = accepted.recv(TICKET_BYTES, socket.MSG_WAITALL)
            is_agent = (
                pid != 0 and _parent(worker_pid) == pid
            )  # 0: a process that is not visible from this PID namespace
            if uid != os.geteuid() or not hmac.compare_digest(ticket, self.ticket) or not is_agent:
                raise PermissionError("the peer is not the agent")
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
    """Returns the parent of a process; 0 if it is not visible from this PID namespace."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0

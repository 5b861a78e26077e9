"""Unix sockets at which programs of the server's user exchange their token for a session token.

They are in a private directory, so that only processes of the server's user reach them, and the user of each connection
is checked as well. A session token is valid for this process only: another program that listens on the port later
learns nothing useful from the session tokens that clients send.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing

import structlog

from shardcall_core.access.session import LONGEST_NAME, UNKNOWN
from shardcall_core.wire.private_sockets import peer_of, usual_parents
from shardcall_server.frontend.access.tokens import FileTokens, Tokens
from shardcall_server.frontend.files.private_directory import PrivateDirectory, remove_stale

_BACKLOG = 1024
_MAX_SILENT = 64
_LONGEST_TOKEN = 512
_ACCEPT_PAUSE_S = 0.1


class SessionSockets:
    """Serves the sockets on a thread of its own; see `open_session_sockets`.

    Args:
        directory: the directory of the sockets; removed by `close`.
        names: the names of the sockets, made by `shardcall_core.access.session.socket_name`.
        tokens: the tokens that can be exchanged.

    Raises:
        OSError: the sockets cannot be made.
    """

    def __init__(self, directory: PrivateDirectory, names: Iterable[str], tokens: Tokens) -> None:
        self._tokens = tokens
        self._listeners: set[socket.socket] = set()
        self._visitors: dict[socket.socket, None] = {}  # in order of arrival
        with ExitStack() as undo:
            undo.callback(directory.remove)
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.callback(os.close, self._wakes)
            self._selector.register(self._wakes, selectors.EVENT_READ)
            for name in names:
                listener = undo.enter_context(
                    closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK))
                )
                listener.bind(os.path.join(directory.path, name))
                listener.listen(_BACKLOG)
                self._listeners.add(listener)
                self._selector.register(listener, selectors.EVENT_READ)
            self._thread = threading.Thread(target=self._serve, name="sessions", daemon=True)
            self._thread.start()
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Removes the sockets; session tokens stay valid. May be repeated."""
        if self._thread.is_alive():
            os.eventfd_write(self._wakes, 1)
            self._thread.join()
            self._undo.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._wakes:
                    for visitor in list(self._visitors):
                        self._dismiss(visitor)
                    return
                try:
                    self._handle(key.fileobj)  # type: ignore[arg-type]  # the only other file is the one above
                except Exception as error:  # noqa: BLE001  # the thread serves all clients and must not end
                    structlog.get_logger().error("the exchange of a token failed unexpectedly", exc_info=error)

    def _handle(self, ready: socket.socket) -> None:
        if ready in self._listeners:
            self._accept(ready)
        elif ready in self._visitors:  # an earlier event of this iteration may have closed it
            self._answer(ready)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors are left; the listener stays readable, so pause
            structlog.get_logger().warning("a session connection could not be accepted", error=error.strerror)
            time.sleep(_ACCEPT_PAUSE_S)
            return
        if peer_of(accepted)[1] != os.geteuid():
            accepted.close()
            return
        if len(self._visitors) >= _MAX_SILENT:  # an honest client has sent its token by now
            self._dismiss(next(iter(self._visitors)))
        accepted.setblocking(False)
        self._visitors[accepted] = None
        self._selector.register(accepted, selectors.EVENT_READ)

    def _answer(self, visitor: socket.socket) -> None:
        try:
            token = visitor.recv(_LONGEST_TOKEN)  # packets are never split
            if token:
                session = self._tokens.session_of(token.decode(errors="replace"))
                visitor.send(session.encode() if session else UNKNOWN)
        except OSError:  # the client has disconnected
            pass
        self._dismiss(visitor)

    def _dismiss(self, visitor: socket.socket) -> None:
        del self._visitors[visitor]
        self._selector.unregister(visitor)
        visitor.close()


def open_session_sockets(
    names: Iterable[str], tokens: Tokens | None, parents: Iterable[str] | None = None
) -> SessionSockets | None:
    """Opens the sockets in a new private directory.

    Args:
        names: the names of the sockets.
        parents: candidates for the parent directory, best first; None for the usual ones.

    Returns:
        The sockets; None without a token file, or if no directory is usable, which is logged.
    """
    if not isinstance(tokens, FileTokens):
        return None
    refusals = []
    # The user's runtime directory comes last, since it is removed when the user logs out.
    for parent in reversed(list(usual_parents())) if parents is None else parents:
        remove_stale(parent)
        try:
            return SessionSockets(PrivateDirectory(parent, LONGEST_NAME), names, tokens)
        except OSError as error:
            refusals.append(f"{parent}: {error.strerror or error}")
    structlog.get_logger().warning(
        "programs of this user do not find the token by themselves: no directory for a session socket", tried=refusals
    )
    return None

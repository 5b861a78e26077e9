"""The Unix sockets at which programs of the server's user exchange their token for a session token.

They lie in a directory of the server's own, so only processes of its user reach them, and each connection is asked
whose it is all the same. A session token is known to this process alone: whoever takes the port after it has ended
learns nothing of worth from those that clients bring.
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

from shardcall._src.access.session import LONGEST_NAME, UNKNOWN
from shardcall._src.wire.private_sockets import peer_of, usual_parents
from shardcall_server.frontend.access.tokens import FileTokens, Tokens
from shardcall_server.frontend.files.private_directory import PrivateDirectory, remove_stale

_BACKLOG = 1024
_MAX_SILENT = 64
_LONGEST_TOKEN = 512
_ACCEPT_PAUSE_S = 0.1


class SessionSockets:
    """Serves the sockets with one thread of its own; `open_session_sockets` makes one.

    Args:
        directory: where the sockets go; removed at the end.
        names: of the sockets, by `shardcall._src.access.session.socket_name`.
        tokens: those that are exchanged.

    Raises:
        OSError: there can be no socket there.
    """

    def __init__(self, directory: PrivateDirectory, names: Iterable[str], tokens: Tokens) -> None:
        self._tokens = tokens
        self._listeners: set[socket.socket] = set()
        self._visitors: dict[socket.socket, None] = {}  # in the order in which they came
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
        """Removes the sockets; session tokens stay good. May be repeated."""
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
                except Exception as error:  # noqa: BLE001  # the thread serves everybody and must not end
                    structlog.get_logger().error("giving session tokens failed unexpectedly", exc_info=error)

    def _handle(self, ready: socket.socket) -> None:
        if ready in self._listeners:
            self._accept(ready)
        elif ready in self._visitors:  # not one that an event before it in this round has dismissed
            self._answer(ready)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors: the listener stays readable, and would be asked without end
            structlog.get_logger().warning("no connection for a session token can be accepted", error=error.strerror)
            time.sleep(_ACCEPT_PAUSE_S)
            return
        if peer_of(accepted)[1] != os.geteuid():
            accepted.close()
            return
        if len(self._visitors) >= _MAX_SILENT:  # who means it has sent a token by now
            self._dismiss(next(iter(self._visitors)))
        accepted.setblocking(False)
        self._visitors[accepted] = None
        self._selector.register(accepted, selectors.EVENT_READ)

    def _answer(self, visitor: socket.socket) -> None:
        try:
            token = visitor.recv(_LONGEST_TOKEN)  # a packet is whole
            if token:
                session = self._tokens.session_of(token.decode(errors="replace"))
                visitor.send(session.encode() if session else UNKNOWN)
        except OSError:  # it is gone already
            pass
        self._dismiss(visitor)

    def _dismiss(self, visitor: socket.socket) -> None:
        del self._visitors[visitor]
        self._selector.unregister(visitor)
        visitor.close()


def open_session_sockets(
    names: Iterable[str], tokens: Tokens | None, parents: Iterable[str] | None = None
) -> SessionSockets | None:
    """Opens the sockets in a fresh directory that only this user may enter.

    Args:
        names: of the sockets.
        tokens: those of the server.
        parents: where the directory may be, the best first; None for the usual ones.

    Returns:
        The sockets; None where clients find no token by themselves, or where no directory will do, which the log says.
    """
    if not isinstance(tokens, FileTokens):
        return None
    refusals = []
    # The user's runtime directory comes last: it goes when the user logs out.
    for parent in reversed(list(usual_parents())) if parents is None else parents:
        remove_stale(parent)
        try:
            return SessionSockets(PrivateDirectory(parent, LONGEST_NAME), names, tokens)
        except OSError as error:
            refusals.append(f"{parent}: {error.strerror or error}")
    structlog.get_logger().warning(
        "this user's programs must be given the token: no place for a socket where they could show it", tried=refusals
    )
    return None

"""A proxy between client and server that loses answers and cuts connections on request."""

import contextlib
import select
import socket
import threading
import time
from typing import Self

_PIECE_BYTES = 1 << 16
_HEAD_BYTES = 9  # of a frame of HTTP/2: its length in three, its type in one, five more
_ANSWER_FRAMES = (0, 1)  # DATA, HEADERS; the others keep the connection going


class CuttingProxy:
    """Forwards bytes between clients and one server, in both directions.

    Args:
        address: of the server, "host:port".

    Attributes:
        address: its own.
        connections: how many clients have come.
    """

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._silent = threading.Event()
        self._passes = threading.Event()
        self._passes.set()
        self._pause_s = 0.0

    def slow_down(self, bytes_per_s: float) -> None:
        """Forwards at most so many bytes of each connection from now on."""
        self._pause_s = _PIECE_BYTES / bytes_per_s

    def swallow(self) -> None:
        """Forwards nothing from now on, in both directions, and without errors, until `heal`; new connections wait."""
        self._passes.clear()

    def heal(self) -> None:
        """Resumes forwarding, and forwards what was withheld."""
        self._passes.set()

    def lose_answers(self) -> None:
        """Forwards what clients send from now on, and no answer of the server."""
        self._silent.set()

    def cut(self) -> None:
        """Closes all connections; new ones are forwarded as at first."""
        with self._lock:  # those that come now are served after it
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            self._open.clear()
            self._silent.clear()  # not before: of a connection's last answer nothing is passed on, or all
            self._passes.set()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._passes.wait()
        with client, socket.create_connection(self._server) as server, contextlib.suppress(OSError):
            with self._lock:
                self._open += [client, server]
            frames = _Frames()
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for end in ready:
                    self._passes.wait()
                    piece = end.recv(_PIECE_BYTES)
                    time.sleep(self._pause_s * len(piece) / _PIECE_BYTES)
                    if not piece:
                        return
                    if end is client:
                        server.sendall(piece)
                    else:
                        client.sendall(frames.pass_on(piece, without_answers=self._silent.is_set()))


class _Frames:
    """The frames that a server sends over one connection."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._left = 0
        self._passes = True

    def pass_on(self, piece: bytes, *, without_answers: bool) -> bytes:
        """The part of some bytes that is to reach the client; of each frame all or nothing."""
        passed = bytearray()
        while piece:
            if not self._left:
                missing = _HEAD_BYTES - len(self._head)
                self._head += piece[:missing]
                piece = piece[missing:]
                if len(self._head) < _HEAD_BYTES:
                    break
                self._left = int.from_bytes(self._head[:3], "big")
                self._passes = not (without_answers and self._head[3] in _ANSWER_FRAMES)
                passed += self._head if self._passes else b""
                self._head.clear()
            if self._passes:
                passed += piece[: self._left]
            piece, self._left = piece[self._left :], max(0, self._left - len(piece))
        return bytes(passed)

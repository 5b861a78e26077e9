"""Floors of transfers: memory copied in and out, and bytes sent through a socket and back.

    python -m peers.floors          answers requests on standard input
    python -m peers.floors --serve  runs the other end of the sockets

The other end reads all bytes before it sends any, as a server that computes on the complete array must.
"""

from __future__ import annotations

import argparse
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from harness.answering import NDArray, TimedHandler, answer, operand, same, touched_memory
from harness.helper import announce, started, wait_for_end

_SIZE = struct.Struct("<Q")


class Memory:
    """Copies between touched buffers."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(2)

    def copy(self, threads: int, target: NDArray, source: NDArray) -> None:
        """Copies with one thread, or with two threads that copy one half each."""
        if threads == 1:
            np.copyto(target, source)
            return
        a, b = target.reshape(-1), source.reshape(-1)
        half = a.size // 2
        done = [self._pool.submit(np.copyto, a[part], b[part]) for part in (slice(half), slice(half, None))]
        for future in done:
            future.result()

    def in_and_out(self, threads: int, x: NDArray) -> NDArray:
        """Copies into a touched buffer, and from it into another one."""
        between, out = _between(x.nbytes), touched_memory(x.nbytes)
        self.copy(threads, between, x)
        self.copy(threads, out, between)
        return out

    def once(self, threads: int, x: NDArray) -> NDArray:
        """Copies into a touched buffer."""
        out = touched_memory(x.nbytes)
        self.copy(threads, out, x)
        return out


@lru_cache(maxsize=1)
def _between(size_bytes: int) -> NDArray:
    return np.ones_like(operand(size_bytes))


def echo(connection: socket.socket, x: NDArray) -> NDArray:
    """Sends the array and reads it back into touched memory."""
    out = touched_memory(x.nbytes)
    connection.sendall(_SIZE.pack(x.nbytes))
    connection.sendall(x.reshape(-1).view(np.uint8).data)
    _read(connection, out)
    return out


def _read(connection: socket.socket, target: NDArray) -> None:
    view = memoryview(target.reshape(-1).view(np.uint8).data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the other end has closed")
        view = view[count:]


def _serve_one(connection: socket.socket) -> None:
    buffer = np.empty(0, np.uint8)
    while header := connection.recv(_SIZE.size, socket.MSG_WAITALL):
        (size,) = _SIZE.unpack(header)
        if buffer.size != size:
            buffer = np.ones(size, np.uint8)
        _read(connection, buffer)
        connection.sendall(buffer.data)


def _listen(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen()

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            _set_no_delay(connection)
            threading.Thread(target=_serve_one, args=[connection], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener


def _set_no_delay(connection: socket.socket) -> None:
    if connection.family == socket.AF_INET:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _connect(family: socket.AddressFamily, address: str | tuple[str, int]) -> Callable[[NDArray], NDArray]:
    connection = socket.socket(family, socket.SOCK_STREAM)
    connection.connect(address)
    _set_no_delay(connection)
    return partial(echo, connection)


def serve() -> None:
    """Listens on a TCP socket and a Unix socket until it is terminated."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "echo.sock")
        port = _listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        _listen(socket.AF_UNIX, path)
        announce(f"{port} {path}")
        wait_for_end()


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs floors of a benchmark on commands from standard input.")
    parser.add_argument("--serve", action="store_true")
    if parser.parse_args().serve:
        serve()
        return
    memory = Memory()
    with started("peers.floors", "--serve") as line:
        port, path = line.split()
        handlers = {f"in-and-out-{n}": TimedHandler(partial(memory.in_and_out, n), same) for n in (1, 2)}
        handlers |= {f"once-{n}": TimedHandler(partial(memory.once, n), same) for n in (1, 2)}
        handlers["tcp"] = TimedHandler(_connect(socket.AF_INET, ("127.0.0.1", int(port))), same)
        handlers["uds"] = TimedHandler(_connect(socket.AF_UNIX, path), same)
        answer(handlers)


if __name__ == "__main__":
    main()

"""The floor under a server of two processes: a bare gRPC server that hands 64 bytes to a process which calls JAX.

    python -m peers.grpc_worker DEVICES     is the front, and starts the worker

It has our server's processes and nothing else of it: no messages, checks, deadlines, counts or names. A request's bytes
go over a Unix socket to the worker, which runs the server's own program on them, gets the result and sends its bytes
back; one thread of the front reads them and wakes the call's. It is asked by `peers.grpc_echo`.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import grpc

from peers.grpc_echo import serving

_HEADER = struct.Struct("<IQ")
_RECEIVE_BYTES = 1 << 18


def frames(link: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yields the number and the bytes of what comes, until the other end is gone."""
    buffer = bytearray()
    while data := link.recv(_RECEIVE_BYTES):
        buffer += data
        while len(buffer) >= _HEADER.size:
            size, number = _HEADER.unpack_from(buffer)
            end = _HEADER.size + size
            if len(buffer) < end:
                break
            yield number, bytes(buffer[_HEADER.size : end])
            del buffer[:end]


def send(link: socket.socket, number: int, data: bytes) -> None:
    """Sends bytes under a number; by one thread at a time."""
    link.sendall(_HEADER.pack(len(data), number) + data)


class Front:
    """Hands requests to the worker, for as many threads as ask.

    Args:
        link: to the worker.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._numbers = itertools.count()
        self._waiting: dict[int, SimpleQueue[bytes | None]] = {}
        self._sending = threading.Lock()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def unary(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        """The difference of what came.

        Raises:
            RuntimeError: the worker has ended.
        """
        answer: SimpleQueue[bytes | None] = SimpleQueue()
        number = next(self._numbers)
        self._waiting[number] = answer
        if not self._ended:  # else waiters would not be notified again
            with self._sending:
                send(self._link, number, request)
            if (data := answer.get()) is not None:
                return data
        raise RuntimeError("the worker has ended; its error stands above")

    def _read(self) -> None:
        for number, data in frames(self._link):
            self._waiting.pop(number).put(data)
        self._ended = True
        for answer in list(self._waiting.values()):
            answer.put(None)


def work(link: socket.socket, devices: int) -> None:
    """Answers until the front is gone."""
    # JAX is for this process alone.
    import numpy as np  # noqa: PLC0415

    from peers import jax_job  # noqa: PLC0415
    from peers.in_process_jax import small  # noqa: PLC0415

    jax_job.configure()
    for number, data in frames(link):
        send(link, number, small(np.frombuffer(data, np.float64).reshape(-1, 1), devices).tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description="A bare gRPC server before a process that calls JAX.")
    parser.add_argument("devices", type=int)
    parser.add_argument("--link-fd", type=int, help="is the worker, not the front")
    arguments = parser.parse_args()
    if arguments.link_fd is not None:
        work(socket.socket(fileno=arguments.link_fd), arguments.devices)
        return
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "peers.grpc_worker", str(arguments.devices), "--link-fd", str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]):
        theirs.close()
        try:
            serving({"Unary": grpc.unary_unary_rpc_method_handler(Front(ours).unary)})
        finally:
            ours.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()

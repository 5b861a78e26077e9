"""Floor of a server of two processes: a bare gRPC server that passes 64 bytes to a process which calls JAX.

    python -m peers.grpc_worker DEVICES     runs the front, which starts the worker

It has the processes of the shardcall server, but no messages, checks, deadlines, counts or names. A request's bytes go
over a Unix socket to the worker, which runs the server's program on them and sends the bytes of the result back. One
thread of the front reads them and wakes the thread of the call, or passes them to the stream of `peers.bare_stream`
by which the request came. Waiting items are written, read and answered together. `peers.grpc_echo` calls it.
"""

from __future__ import annotations

import argparse
import itertools
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from queue import SimpleQueue

import grpc

from peers.bare_stream import pack, unpack, waiting
from peers.grpc_echo import serving

_RECEIVE_BYTES = 1 << 18
_NUMBERS = 32
"""Bits of an item's number; those above it are the number of its stream, or of its unary call."""


def batches(link: socket.socket) -> Iterator[list[tuple[int, bytes]]]:
    """Yields the items that arrive together, until the other end is gone."""
    buffer = bytearray()
    while data := link.recv(_RECEIVE_BYTES):
        buffer += data
        items, end = unpack(buffer)
        del buffer[:end]
        yield items


class Front:
    """Passes requests to the worker, for any number of threads.

    Args:
        link: the socket to the worker.
    """

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._callers = itertools.count()
        self._answers: dict[int, SimpleQueue[bytes | None]] = {}
        self._sending = threading.Lock()
        self._ended = False
        threading.Thread(target=self._read, daemon=True).start()

    def unary(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        """Returns the difference of the request.

        Raises:
            RuntimeError: the worker has ended.
        """
        caller, answers = self._caller()
        try:
            if not self._ended:  # otherwise no thread would wake this one
                self._send(pack(caller << _NUMBERS, request))
                if (item := answers.get()) is not None:
                    return unpack(item)[0][0][1]
        finally:
            del self._answers[caller]
        raise RuntimeError("the worker has ended; its error stands above")

    def calls(self, frames: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        """Returns the differences of the items of a stream."""
        caller, answers = self._caller()

        def forward() -> None:
            try:
                for frame in frames:
                    items = unpack(frame)[0]
                    self._send(b"".join(pack(caller << _NUMBERS | number, data) for number, data in items))
            except grpc.RpcError:  # the client is gone
                pass
            answers.put(None)

        threading.Thread(target=forward, daemon=True).start()
        return waiting(answers)

    def _caller(self) -> tuple[int, SimpleQueue[bytes | None]]:
        caller, answers = next(self._callers), SimpleQueue[bytes | None]()
        self._answers[caller] = answers
        return caller, answers

    def _send(self, items: bytes) -> None:
        with self._sending:
            self._link.sendall(items)

    def _read(self) -> None:
        for items in batches(self._link):
            by_caller: defaultdict[int, list[bytes]] = defaultdict(list)
            for number, data in items:
                by_caller[number >> _NUMBERS].append(pack(number & (1 << _NUMBERS) - 1, data))
            for caller, packed in by_caller.items():
                self._answers[caller].put(b"".join(packed))
        self._ended = True
        for answers in list(self._answers.values()):
            answers.put(None)


def work(link: socket.socket, devices: int) -> None:
    """Answers until the front is gone."""
    # JAX is for this process alone.
    import numpy as np  # noqa: PLC0415

    from peers import jax_job  # noqa: PLC0415
    from peers.in_process_jax import small  # noqa: PLC0415

    jax_job.configure()
    for items in batches(link):
        results = ((number, small(np.frombuffer(data).reshape(-1, 1), devices)) for number, data in items)
        link.sendall(b"".join(pack(number, result.tobytes()) for number, result in results))


def main() -> None:
    parser = argparse.ArgumentParser(description="A bare gRPC server before a process that calls JAX.")
    parser.add_argument("devices", type=int)
    parser.add_argument("--link-fd", type=int, help="descriptor of the link, to run the worker instead of the front")
    arguments = parser.parse_args()
    if arguments.link_fd is not None:
        work(socket.socket(fileno=arguments.link_fd), arguments.devices)
        return
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "peers.grpc_worker", str(arguments.devices), "--link-fd", str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()]):
        theirs.close()
        try:
            front = Front(ours)
            serving(
                {
                    "Unary": grpc.unary_unary_rpc_method_handler(front.unary),
                    "Calls": grpc.stream_stream_rpc_method_handler(front.calls),
                }
            )
        finally:
            ours.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()

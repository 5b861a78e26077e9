"""Floor of gRPC: the bytes of a call sent to a bare server and back, without messages or computation.

    python -m peers.grpc_echo [--load-seconds S] [--addresses ADDRESSES | --worker-devices N]     answers requests
    python -m peers.grpc_echo --serve                                                             runs the server

It is as fast as Python allows: no serializers, chunks of 1 MiB, large frames and reads, touched buffers at both ends.
Chunks have 16 bytes before their data, as those of shardcall do.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import numpy as np

from harness.answering import Handler, NDArray, TimedHandler, answer, repeated, same, touched_memory
from harness.helper import announce, started, wait_for_end
from harness.load import loaded
from peers.bare_stream import BareStream

_CHUNK_BYTES = 1 << 20
_HEADER = bytes(16)
_UNARY, _STREAM = "/echo.Echo/Unary", "/echo.Echo/Stream"
_THREADS = 72
_CALL = bytes(64)
_DIFFERED = np.arange(8.0) ** 2
Unary: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"
# The options of shardcall_core.access.channel and of the server.
OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.max_send_message_length", 16 << 20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.max_frame_size", (1 << 24) - 1),
    ("grpc.http2.lookahead_bytes", (1 << 24) - 1),
    ("grpc.experimental.tcp_read_chunk_size", 4 << 20),
    ("grpc.experimental.tcp_min_read_chunk_size", 4 << 20),
    ("grpc.experimental.tcp_max_read_chunk_size", 4 << 20),
]


def _bytes_of(x: NDArray) -> NDArray:
    return x.reshape(-1).view(np.uint8)


def _chunks(data: NDArray) -> Iterator[bytes]:
    for start in range(0, data.size, _CHUNK_BYTES):
        yield b"".join((_HEADER, data[start : start + _CHUNK_BYTES].data))


def _gather(chunks: Iterator[bytes], target: NDArray) -> None:
    at = 0
    for chunk in chunks:
        size = len(chunk) - len(_HEADER)
        np.copyto(target[at : at + size], np.frombuffer(chunk, np.uint8, size, len(_HEADER)))
        at += size


class EchoServer:
    """An echo server with one touched buffer, which has the size of the last stream."""

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint8)

    def unary(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        """Returns the request."""
        return request

    def calls(self, frames: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        """Returns every frame as it comes."""
        yield from frames

    def stream(self, requests: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        """Returns the bytes of a stream once all of them have come."""
        size = int.from_bytes(next(requests), "little")
        if self._buffer.size != size:
            self._buffer = np.ones(size, np.uint8)
        _gather(requests, self._buffer)
        yield from _chunks(self._buffer)


def serve() -> None:
    """Echoes until it is terminated."""
    echo = EchoServer()
    serving(
        {
            "Unary": grpc.unary_unary_rpc_method_handler(echo.unary),
            "Calls": grpc.stream_stream_rpc_method_handler(echo.calls),
            "Stream": grpc.stream_stream_rpc_method_handler(echo.stream),
        }
    )


def serving(handlers: dict[str, Any]) -> None:
    """Serves methods of `echo.Echo` until it is terminated."""
    server = grpc.server(ThreadPoolExecutor(_THREADS), options=[*OPTIONS, ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("echo.Echo", handlers)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "echo.sock"
        port = server.add_insecure_port("127.0.0.1:0")
        server.add_insecure_port(f"unix:{path}")
        server.start()
        announce(f"127.0.0.1:{port} unix:{path}")
        wait_for_end()
        server.stop(0).wait()


def _unary_job(channel: grpc.Channel) -> Callable[[NDArray], NDArray]:
    call: Unary = channel.unary_unary(_UNARY)

    def job(x: NDArray) -> NDArray:
        return np.frombuffer(call(x.tobytes()), x.dtype).reshape(x.shape)

    return job


def _stream_job(channel: grpc.Channel) -> Callable[[NDArray], NDArray]:
    call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(_STREAM)

    def requests(x: NDArray) -> Iterator[bytes]:
        yield x.nbytes.to_bytes(8, "little")
        yield from _chunks(_bytes_of(x))

    def job(x: NDArray) -> NDArray:
        out = touched_memory(x.nbytes)
        _gather(call(requests(x)), _bytes_of(out))
        return out

    return job


def check_differences(call: Callable[[bytes], bytes]) -> None:
    """Raises AssertionError if the worker does not take differences."""
    if not np.array_equal(np.frombuffer(call(_DIFFERED.tobytes())), np.diff(_DIFFERED, prepend=0.0)):
        raise AssertionError("the worker does not take differences")


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks a bare gRPC server on commands from standard input.")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--load-seconds", type=float, default=2.0)
    parser.add_argument("--addresses", help="addresses of a running server, as another of these processes prints them")
    parser.add_argument("--worker-devices", type=int, help="run a server with a worker of this many devices instead")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    devices = arguments.worker_devices
    server = started("peers.grpc_worker", str(devices)) if devices else started("peers.grpc_echo", "--serve")
    with nullcontext(arguments.addresses) if arguments.addresses else server as line:
        handlers: dict[str, Handler] = {"addresses": lambda _: {"addresses": line}}
        for name, address in zip(("tcp", "uds"), line.split(), strict=True):
            channel = grpc.insecure_channel(address, options=OPTIONS)
            call: Unary = channel.unary_unary(_UNARY)
            stream = BareStream(channel)
            if not devices:
                handlers[f"unary-{name}"] = TimedHandler(_unary_job(channel), same)
                handlers[f"stream-{name}"] = TimedHandler(_stream_job(channel), same)
            else:
                check_differences(call)
                check_differences(stream.call)
            for transport, ask in ((name, call), (f"{name}-stream", stream.call)):
                handlers[f"calls-{transport}"] = repeated(partial(ask, _CALL))
                handlers[f"load-{transport}"] = loaded(partial(ask, _CALL), arguments.load_seconds)
        answer(handlers)


if __name__ == "__main__":
    main()

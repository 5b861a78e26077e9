"""Clients to be killed: as many processes as asked for, each in the middle of something with a server.

Run as a script, with the server's address, what to be in the middle of, and how many; each prints its process's id
when it has come there, or ``failed``. They end with standard input.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator

import numpy as np
from end_to_end.messages import SMALL_WINDOW, call, chunk, header, open_channel, operand, tensor

import shardcall as sc
from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2, kernel_service_pb2_grpc

_PR_SET_PDEATHSIG = 1
_MIB = 1 << 20
_ROWS = 2048  # a result of 32 MiB: a connection whose window does not grow has no buffers for it


def there() -> None:
    """Reports that this client has reached the point at which it is to be killed."""
    os.write(sys.stdout.fileno(), f"{os.getpid()}\n".encode())  # one write, which other writers do not interleave


def rest() -> None:
    """Never returns."""
    there()
    threading.Event().wait()


def upload(address: str) -> None:
    """Stalls after half an operand."""

    def half() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header((4, _MIB // 8))
        yield chunk(0, 0, _MIB)
        yield chunk(0, _MIB, _MIB)
        rest()

    next(kernel_service_pb2_grpc.KernelServiceStub(open_channel(address)).ExecuteStream(half()), None)


def put(address: str) -> None:
    """Stalls after half an array that is to stay."""

    def half() -> Iterator[array_service_pb2.PutArrayRequest]:
        array = kernel_service_pb2.Operand(type=tensor(4, _MIB // 8), streamed={})
        yield array_service_pb2.PutArrayRequest(header={"array": array, "lease_id": os.urandom(16)})
        yield array_service_pb2.PutArrayRequest(chunk=chunk(0, 0, _MIB).chunk)
        rest()

    array_service_pb2_grpc.ArrayServiceStub(open_channel(address)).PutArray(half())


def download(address: str) -> None:
    """Reads no more than the first of a large result."""
    operands = [operand(np.ones(shape)) for shape in ((_ROWS, 1), (1, _ROWS))]
    request = kernel_service_pb2.ExecuteStreamRequest(header={"call": call("matmul"), "operands": operands})
    channel = open_channel(address, SMALL_WINDOW)
    answer = kernel_service_pb2_grpc.KernelServiceStub(channel).ExecuteStream(iter([request]))
    next(answer)
    rest()


def hold_segment(address: str) -> None:
    """Holds shared memory with an array of its own and a result in it."""
    client = sc.connect(address, connect_timeout=60)
    x = client.empty((128, _MIB // 512))
    x[...] = 1
    kept = client.diff(x, axis=0).array
    assert kept.shape
    rest()


def call_by_segment(address: str) -> None:
    """Calls without end, by shared memory; an observer's call may take the slot of one."""
    client = sc.connect(address, connect_timeout=60)
    x = client.empty((128, _MIB // 512))
    x[...] = 1
    client.diff(x, axis=0)
    there()
    while True:
        with contextlib.suppress(sc.ResourceExhaustedError):
            client.diff(x, axis=0)


def keep_arrays(address: str) -> None:
    """Leaves arrays on the mesh and renews their lease."""
    client = sc.connect(address, connect_timeout=60)
    kept = client.put(np.ones((128, _MIB // 512)))
    assert kept.shape
    rest()


DEEDS: dict[str, Callable[[str], None]] = {
    deed.__name__: deed for deed in (upload, put, download, hold_segment, call_by_segment, keep_arrays)
}


def _begin(deed: Callable[[str], None], address: str) -> None:
    # gRPC is loaded and has done nothing yet: so a copy of this process may use it.
    if not os.fork():
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        try:
            deed(address)
        except BaseException:  # noqa: BLE001  # the test reports every failure
            traceback.print_exc()
        os.write(sys.stdout.fileno(), b"failed\n")
        os._exit(1)


if __name__ == "__main__":
    _, address, deed, count = sys.argv
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead leave nothing behind
    for _ in range(int(count)):
        _begin(DEEDS[deed], address)
    sys.stdin.read()

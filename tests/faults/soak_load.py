"""A client process of the soak: valid calls of every kind, calls that are cancelled, and invalid ones.

Run as a script with the server's address and a seed; works until its standard input ends, then prints what it saw.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import grpc
import numpy as np
from end_to_end.messages import chunk, execute, header, open_channel, operand
from faults import bad_input_rows_layouts, bad_input_rows_parameters, bad_input_rows_streams, bad_input_rows_types
from faults.bad_input_rows import Row
from faults.test_bad_input import check, send

import shardcall as sc
from shardcall.v1 import kernel_service_pb2_grpc

THREADS = 3
_CANCELLED, _BAD = 0.20, 0.05
_SHAPES = 40
_BEARABLE = {"MESH_RESTARTED", "MESH_NOT_READY", "ARRAY_LOST", "SERVER_BUSY", "QUOTA_EXCEEDED"}
_ROWS = [
    *bad_input_rows_types.ROWS,
    *bad_input_rows_layouts.ROWS,
    *bad_input_rows_parameters.ROWS,
    *bad_input_rows_streams.ROWS,
]


class Load:
    """The load of this process's threads.

    Args:
        address: the server.
        seed: the seed of their random numbers.

    Attributes:
        counts: the number of operations, by kind.
        faults: descriptions of the faults that were seen.
    """

    def __init__(self, address: str, seed: int) -> None:
        self._address, self._seed = address, seed
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        """Works until standard input ends."""
        with (
            sc.connect(self._address) as near,
            sc.connect(self._address, shared_memory=False, call_stream=False) as far,
            open_channel(self._address) as channel,
        ):
            threads = [
                threading.Thread(target=self._work, args=[near, far, channel, 100 * self._seed + i])
                for i in range(THREADS)
            ]
            for thread in threads:
                thread.start()
            sys.stdin.read()
            self._ended.set()
            for thread in threads:
                thread.join()

    def _work(self, near: sc.Client, far: sc.Client, channel: grpc.Channel, seed: int) -> None:
        chance = np.random.default_rng(seed)
        while not self._ended.is_set():
            drawn = chance.random()
            if drawn < _CANCELLED:
                self._cancel(channel, chance)
            elif drawn < _CANCELLED + _BAD:
                self._err(channel, _ROWS[chance.integers(len(_ROWS))])
            else:
                self._compute(near, far, chance)

    def _compute(self, near: sc.Client, far: sc.Client, chance: np.random.Generator) -> None:
        operation, name = _OPERATIONS[chance.integers(len(_OPERATIONS))]
        try:
            right = operation(near, far, chance)
        except sc.ShardcallError as error:
            self._count(error.reason, error.reason not in _BEARABLE and f"{name}: {error.reason}: {error}")
        else:
            self._count(name, not right and f"{name} was wrong")

    def _cancel(self, channel: grpc.Channel, chance: np.random.Generator) -> None:
        """Cancels a unary call, or a stream in the middle of its upload, after a random time."""
        stub, after_s = kernel_service_pb2_grpc.KernelServiceStub(channel), float(chance.exponential(0.01))
        left = threading.Event()

        def upload() -> Iterator[object]:
            yield header((1 << 17,))
            yield chunk(0, 0, 1 << 19)
            left.wait(60)

        with suppress(grpc.RpcError):
            if chance.random() < 0.5:
                future = stub.Execute.future(execute(operand(chance.standard_normal(512))), timeout=60)
                with suppress(grpc.FutureTimeoutError):
                    future.result(after_s)
                future.cancel()
            else:
                stream = stub.ExecuteStream(upload(), timeout=60)
                self._ended.wait(after_s)
                stream.cancel()
        left.set()
        self._count("cancelled", False)

    def _err(self, channel: grpc.Channel, row: Row) -> None:
        try:
            send(channel, row)
        except grpc.RpcError as error:
            fault = ""
            if error.code() is not grpc.StatusCode.UNAVAILABLE:  # the mesh was killed under it
                with suppress(KeyError):
                    fault = self._checked(row, error)
            self._count("bad input", fault)
        else:
            self._count("bad input", f"{row.name} was served")

    @staticmethod
    def _checked(row: Row, error: grpc.RpcError) -> str:
        try:
            check(row, error)
        except AssertionError as wrong:
            return "" if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else f"{row.name}: {wrong}"
        return ""

    def _count(self, what: str, fault: str | bool) -> None:
        with self._lock:
            self.counts[what] += 1
            if fault:
                self.faults.append(str(fault)[:500])


def _small(near: sc.Client, far: sc.Client, chance: np.random.Generator) -> bool:
    x = chance.standard_normal((int(chance.integers(2, 2 + _SHAPES)), 4))
    return np.array_equal(near.diff(x, axis=0).array, np.diff(x, axis=0))


def _streamed(near: sc.Client, far: sc.Client, chance: np.random.Generator) -> bool:
    x = chance.standard_normal((1024, 256))
    return np.array_equal(far.diff(x, axis=0, mesh=sc.Mesh(x=8)).array, np.diff(x, axis=0))


def _shared(near: sc.Client, far: sc.Client, chance: np.random.Generator) -> bool:
    x = chance.standard_normal((1024, 256))
    return np.array_equal(near.diff(x, axis=1, mesh=sc.Mesh(x=2)).array, np.diff(x, axis=1))


def _kept(near: sc.Client, far: sc.Client, chance: np.random.Generator) -> bool:
    x = chance.standard_normal((64, 16))
    with near.put(x, mesh=sc.Mesh(x=8)) as there:
        y = near.diff(there, axis=0, keep=True).array
        right = np.array_equal(np.asarray(there), x) and np.array_equal(np.asarray(y), np.diff(x, axis=0))
        near.delete(y)
    return right


def _planned(near: sc.Client, far: sc.Client, chance: np.random.Generator) -> bool:
    rows = int(chance.integers(8, 8 + _SHAPES))
    return near.plan("sum", sc.Array((rows, 8), "float32"), axis=0).kernel == "sum"


_OPERATIONS = [
    (_small, "small"),
    (_small, "small"),
    (_streamed, "streamed"),
    (_shared, "shared"),
    (_kept, "kept"),
    (_planned, "planned"),
]

if __name__ == "__main__":
    load = Load(sys.argv[1], int(sys.argv[2]))
    load.run()
    print(json.dumps({"counts": load.counts, "faults": load.faults[:20], "fault_count": len(load.faults)}))  # noqa: T201

"""Traced programs of a client that waits for each of them.

    python -m peers.traced_client ADDRESS

The jobs are those of `peers.traced_jax`. ``round_trip`` is a call of the smallest program, ``bytes`` counts what such a
call sends and receives, and ``many`` is a function with that many calls of kernels, which is traced, looked up and
launched.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from functools import cache
from typing import Any

import numpy as np

import shardcall as sc
from harness.answering import Answer, answer
from peers import traced_jobs

_RECEIVE_BYTES = 1 << 18


class CountingProxy:
    """Forwards connections to a server and counts their bytes, in both directions.

    Attributes:
        address: the address of the proxy.
        counted: the bytes so far.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.counted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, server = self._listener.accept()[0], socket.create_connection(self._target)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=[source, sink], daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(_RECEIVE_BYTES):
            self.counted += len(data)
            sink.sendall(data)


def _steps(name: str, client: sc.Client, size: int) -> Any:
    """Returns a function that runs a job once and waits for the result."""
    xp = client.xp
    if name == "chain":
        u = client.put(traced_jobs.start(size), mesh={"x": 8}, spec=("x", None))
        chain = client.jit(lambda u: traced_jobs.chain(np, u))
        return lambda: float(chain(u))
    if name.startswith("heat"):
        u = client.put(traced_jobs.start(size).astype(name.removeprefix("heat_")), mesh={"x": 8}, spec=("x", None))
        step = client.jit(lambda u: traced_jobs.heat(np, u))
        return lambda: step.repeat(u, times=traced_jobs.HEAT_STEPS).get(timeout=None)[0, 0]
    axes, specs = traced_jobs.LAYOUTS[name]
    arrays = [client.put(a, mesh=axes, spec=s) for a, s in zip(traced_jobs.network(size), specs, strict=True)]
    train = client.jit(client.value_and_grad(lambda params, x, y: traced_jobs.loss(xp, params, x, y)))
    x, y, *params = arrays

    # The results of a program are ready together, and the loss is what a training loop reads.
    return lambda: float(train(tuple(params), x, y)[0])


def main() -> None:
    """Answers until standard input ends."""
    address = sys.argv[1]
    client = sc.connect(address)
    steps = cache(lambda name, size: _steps(name, client, size))

    def job(name: str) -> Any:
        return lambda size: traced_jobs.timed(steps(name, size))

    small = client.put(np.float64(1))
    negative = client.jit(lambda x: -x)

    def count_bytes(calls: int) -> Answer:
        proxy = CountingProxy(address)
        with sc.connect(proxy.address) as counted:
            u = counted.put(traced_jobs.start(512), mesh={"x": 8}, spec=("x", None))
            chain = counted.jit(lambda u: traced_jobs.chain(np, u))
            for _ in range(3):
                float(chain(u))
            before = proxy.counted
            for _ in range(calls):
                float(chain(u))
            return {"seconds": [], "bytes": (proxy.counted - before) / calls}

    def many(nodes: int) -> Answer:
        u = client.put(np.ones(8), mesh={"x": 8})
        program = client.jit(lambda u: traced_jobs.many(np, u, nodes))
        began = time.perf_counter()
        program(u).get()
        return {"seconds": [time.perf_counter() - began]}

    handlers = {name: job(name) for name in traced_jobs.JOBS}
    handlers["round_trip"] = lambda _: traced_jobs.timed(lambda: float(negative(small)))
    answer({**handlers, "bytes": count_bytes, "many": many})


if __name__ == "__main__":
    main()

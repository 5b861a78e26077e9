"""The shardcall client, in a separate process.

    python -m peers.shardcall_client ADDRESS [--unix-address ADDRESS] [--load-seconds S]

The transports of an array are ``tcp`` and ``uds`` (messages that the client selects by size), ``tcp-stream`` and
``uds-stream`` (a stream for any size), ``segment-in-place`` (copied in, read in place), ``segment-copied``
(copied in and out) and ``segment-empty`` (made in shared memory, read in place). ``calls-tcp-8`` makes small
calls on 8 devices, by the client's call stream; ``calls-tcp-unary-8`` makes them as unary RPCs. Each of the dependent
calls of ``submitted-tcp`` and ``kept-tcp`` has the result of the one before as its operand.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

import shardcall as sc
from harness.answering import (
    SHARDED_FROM_BYTES,
    Answer,
    Handler,
    NDArray,
    TimedHandler,
    answer,
    operand,
    repeated,
    touched_memory,
)
from harness.load import loaded
from shardcall import P

_PLAIN = np.ones((8, 8))
_SMALL = np.arange(8.0).reshape(8, 1)
_DEVICES = (1, 8)


def streaming(client: sc.Client) -> sc.Client:
    """Returns the client with the server limits changed, so that it sends all arrays as streams."""
    limits = dataclasses.replace(client._info.limits, max_inline_bytes=0)
    client._info = dataclasses.replace(client._info, limits=limits)
    return client


def diff(client: sc.Client, x: NDArray, devices: int) -> sc.Result:
    """Runs the job on a number of devices."""
    mesh = sc.Mesh(x=devices, y=1)
    return client.diff(x, axis=0, prepend=x.dtype.type(0), mesh=mesh, spec=P("x", None))


class ArrayHandler(TimedHandler):
    """A handler that returns the difference of an array.

    Args:
        client: the client.
        prepare: converts the caller's array to the operand; called once for each size.
        taken: converts a result to the caller's array.
    """

    def __init__(
        self,
        client: sc.Client,
        prepare: Callable[[NDArray], NDArray] = lambda x: x,
        taken: Callable[[NDArray], NDArray] = lambda y: y,
    ) -> None:
        super().__init__(self._run)
        self._client = client
        self._argument = lru_cache(maxsize=1)(lambda size: prepare(operand(size)))
        self._taken = taken
        self._execute: list[float] = []

    def __call__(self, size_bytes: int) -> Answer:
        """Makes the calls."""
        self._execute = []
        return {**super().__call__(size_bytes), "execute": self._execute}

    def argument(self, size_bytes: int) -> NDArray:
        """Returns the operand of the call."""
        return self._argument(size_bytes)

    def _run(self, x: NDArray) -> NDArray:
        result = diff(self._client, x, 8 if x.nbytes >= SHARDED_FROM_BYTES else 1)
        self._execute.append(result.timing.execute)
        return self._taken(result.array)


def _copied_out(result: NDArray) -> NDArray:
    out = touched_memory(result.nbytes)
    np.copyto(out, result)
    return out


def _built_in(client: sc.Client, x: NDArray) -> NDArray:
    shared = client.empty(x.shape, x.dtype)
    np.copyto(shared, x)
    return shared


def dependent(client: sc.Client, *, submitted: bool) -> Handler:
    """Returns a handler that makes dependent calls on one device and reads the last result."""

    def call(x: Any) -> Any:
        if submitted:
            return client.submit("add", x, 1)  # type: ignore[attr-defined, unused-ignore]
        return client.call("add", x, 1, keep=True).array

    def handler(count: int) -> Answer:
        start = client.put(np.zeros((64, 64)), mesh=sc.Mesh(x=1))
        began, cpu, last = time.perf_counter(), time.process_time(), start
        for _ in range(count):
            last = call(last)
        right = bool((last.get() == count).all())
        seconds = [(time.perf_counter() - began) / count]
        return {"seconds": seconds, "calls": count, "cpu": time.process_time() - cpu, "right": right}

    return handler


def call_handlers(name: str, client: sc.Client, load_seconds: float) -> dict[str, Handler]:
    """Returns the handlers that make small calls."""
    handlers: dict[str, Handler] = {f"plain-{name}": repeated(partial(client.diff, _PLAIN))}
    for devices in _DEVICES:
        call = partial(diff, client, _SMALL, devices)
        handlers[f"calls-{name}-{devices}"] = repeated(call)
        handlers[f"load-{name}-{devices}"] = loaded(call, load_seconds)
    handlers[f"kept-{name}"] = dependent(client, submitted=False)
    if hasattr(client, "submit"):
        handlers[f"submitted-{name}"] = dependent(client, submitted=True)
    return handlers


def message_handlers(name: str, address: str, load_seconds: float) -> dict[str, Handler]:
    """Returns the handlers that send messages to one address."""
    client = sc.connect(address, shared_memory=False)
    handlers: dict[str, Handler] = {name: ArrayHandler(client)}
    handlers[f"{name}-stream"] = ArrayHandler(streaming(sc.connect(address, shared_memory=False)))
    handlers |= call_handlers(name, client, load_seconds)
    unary = sc.connect(address, shared_memory=False, call_stream=False)
    return handlers | call_handlers(f"{name}-unary", unary, load_seconds)


def segment_handlers(address: str) -> dict[str, Handler]:
    """Returns the handlers that use shared memory."""
    client = sc.connect(address)
    return {
        "segment-in-place": ArrayHandler(client),
        "segment-copied": ArrayHandler(client, taken=_copied_out),
        "segment-empty": ArrayHandler(client, prepare=partial(_built_in, client)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks a shardcall server on commands from standard input.")
    parser.add_argument("address")
    parser.add_argument("--unix-address", default="")
    parser.add_argument("--load-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    handlers = message_handlers("tcp", arguments.address, arguments.load_seconds) | segment_handlers(arguments.address)
    if arguments.unix_address:
        handlers |= message_handlers("uds", arguments.unix_address, arguments.load_seconds)
    answer(handlers)


if __name__ == "__main__":
    main()

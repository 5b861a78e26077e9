"""Our own client, in a process of its own.

    python -m peers.shardcall_client ADDRESS [--unix-address ADDRESS] [--load-seconds S]

The transports of an array are ``tcp`` and ``uds`` (messages, as the client chooses by size), ``tcp-stream`` and
``uds-stream`` (a stream whatever the size), ``segment-in-place`` (copied in, read in place), ``segment-copied``
(copied in and out) and ``segment-empty`` (made in shared memory, read in place). ``calls-tcp-8`` makes small
calls on 8 devices.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np

import shardcall as sc
from harness.answering import (
    SHARDED_FROM_BYTES,
    Answer,
    Handler,
    NDArray,
    Timed,
    answer,
    operand,
    repeated,
    touched_memory,
)
from harness.load import loaded
from shardcall import P

_SMALL = np.arange(8.0).reshape(8, 1)
_DEVICES = (1, 8)


def connect(address: str, *, shared_memory: bool) -> sc.Client:
    """A client that uses shared memory, or messages only."""
    # A client that knows no shared memory has nothing to turn off.
    supported = "shared_memory" in inspect.signature(sc.connect).parameters
    if shared_memory and not supported:
        raise NotImplementedError("this client has no shared memory yet")
    options: dict[str, bool] = {"shared_memory": shared_memory} if supported else {}
    return sc.connect(address, **options)  # type: ignore[arg-type, unused-ignore]


def streaming(client: sc.Client) -> sc.Client:
    """The client, made to believe that its server takes nothing in one message."""
    limits = dataclasses.replace(client._info.limits, max_inline_bytes=0)
    client._info = dataclasses.replace(client._info, limits=limits)
    return client


def diff(client: sc.Client, x: NDArray, devices: int) -> sc.Result:
    """The job, on so many devices."""
    mesh = sc.Mesh(x=devices, y=1)
    return client.diff(x, axis=0, prepend=x.dtype.type(0), mesh=mesh, spec=P("x", None))


class ArrayCall(Timed):
    """A handler: an array goes in, its difference comes out.

    Args:
        client: to ask.
        prepare: converts the caller's array to the array of the call; called once a size.
        taken: converts a result to the array that the caller wants.
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
        """The array that the call gets."""
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
    shared: NDArray = client.empty(x.shape, x.dtype)  # type: ignore[attr-defined, unused-ignore]
    np.copyto(shared, x)
    return shared


def message_handlers(name: str, address: str, load_seconds: float) -> dict[str, Handler]:
    """The handlers that send messages to one address."""
    client = connect(address, shared_memory=False)
    handlers: dict[str, Handler] = {name: ArrayCall(client)}
    handlers[f"{name}-stream"] = ArrayCall(streaming(connect(address, shared_memory=False)))
    for devices in _DEVICES:
        call = partial(diff, client, _SMALL, devices)
        handlers[f"calls-{name}-{devices}"] = repeated(call)
        handlers[f"load-{name}-{devices}"] = loaded(call, load_seconds)
    return handlers


def segment_handlers(address: str) -> dict[str, Handler]:
    """The handlers that use shared memory; none if the client does not support it."""
    try:
        client = connect(address, shared_memory=True)
    except NotImplementedError:
        return {}
    return {
        "segment-in-place": ArrayCall(client),
        "segment-copied": ArrayCall(client, taken=_copied_out),
        "segment-empty": ArrayCall(client, prepare=partial(_built_in, client)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks a shardcall server when told.")
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

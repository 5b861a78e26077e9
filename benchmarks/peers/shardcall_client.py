"""Our own client, in a process of its own.

    python -m peers.shardcall_client ADDRESS [--unix-address ADDRESS] [--load-seconds S]

Ways of an array are ``tcp`` and ``uds`` (messages, as the client chooses by size), ``tcp-stream`` and ``uds-stream`` (a
stream whatever the size), ``segment-in-place`` (copied in, read where it lies), ``segment-copied`` (copied in and out)
and ``segment-empty`` (made in shared memory, read where it lies). ``calls-tcp-8`` makes small calls on 8 devices.
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
    SPLIT_FROM_BYTES,
    Answer,
    Handler,
    NDArray,
    Timed,
    answer,
    operand,
    repeated,
    warm,
)
from harness.load import loaded
from shardcall import P

_SMALL = np.arange(8.0).reshape(8, 1)
_DEVICES = (1, 8)


def connect(address: str, *, shared_memory: bool) -> sc.Client:
    """A client that uses shared memory, or messages only."""
    # A client that knows no shared memory has nothing to turn off.
    known = "shared_memory" in inspect.signature(sc.connect).parameters
    if shared_memory and not known:
        raise NotImplementedError("this client has no shared memory yet")
    options: dict[str, bool] = {"shared_memory": shared_memory} if known else {}
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


class Way(Timed):
    """A handler: an array goes in, its difference comes out.

    Args:
        client: to ask.
        given: the array as the call gets it, of the array as the caller has it; made once a size.
        taken: makes of a result what the caller wants.
    """

    def __init__(
        self,
        client: sc.Client,
        given: Callable[[NDArray], NDArray] = lambda x: x,
        taken: Callable[[NDArray], NDArray] = lambda y: y,
    ) -> None:
        super().__init__(self._run)
        self._client = client
        self._given = lru_cache(maxsize=1)(lambda size: given(operand(size)))
        self._taken = taken
        self._execute: list[float] = []

    def __call__(self, size_bytes: int) -> Answer:
        """Makes the calls."""
        self._execute = []
        return {**super().__call__(size_bytes), "execute": self._execute}

    def given(self, size_bytes: int) -> NDArray:
        """The array that the call gets."""
        return self._given(size_bytes)

    def _run(self, x: NDArray) -> NDArray:
        result = diff(self._client, x, 8 if x.nbytes >= SPLIT_FROM_BYTES else 1)
        self._execute.append(result.timing.execute)
        return self._taken(result.array)


def _copied_out(result: NDArray) -> NDArray:
    out = warm(result.nbytes)
    np.copyto(out, result)
    return out


def _built_in(client: sc.Client, x: NDArray) -> NDArray:
    shared: NDArray = client.empty(x.shape, x.dtype)  # type: ignore[attr-defined, unused-ignore]
    np.copyto(shared, x)
    return shared


def message_ways(name: str, address: str, load_seconds: float) -> dict[str, Handler]:
    """The ways of messages to one address."""
    client = connect(address, shared_memory=False)
    ways: dict[str, Handler] = {name: Way(client)}
    ways[f"{name}-stream"] = Way(streaming(connect(address, shared_memory=False)))
    for devices in _DEVICES:
        call = partial(diff, client, _SMALL, devices)
        ways[f"calls-{name}-{devices}"] = repeated(call)
        ways[f"load-{name}-{devices}"] = loaded(call, load_seconds)
    return ways


def segment_ways(address: str) -> dict[str, Handler]:
    """The ways through shared memory; none where the client has no such thing."""
    try:
        client = connect(address, shared_memory=True)
    except NotImplementedError:
        return {}
    return {
        "segment-in-place": Way(client),
        "segment-copied": Way(client, taken=_copied_out),
        "segment-empty": Way(client, given=partial(_built_in, client)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Asks a shardcall server when told.")
    parser.add_argument("address")
    parser.add_argument("--unix-address", default="")
    parser.add_argument("--load-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    ways = message_ways("tcp", arguments.address, arguments.load_seconds) | segment_ways(arguments.address)
    if arguments.unix_address:
        ways |= message_ways("uds", arguments.unix_address, arguments.load_seconds)
    answer(ways)


if __name__ == "__main__":
    main()

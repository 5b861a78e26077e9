"""``shardcall bench``: latency and throughput of a server, each beside its floor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.health import METHOD
from shardcall.cli.output import AsJson, console, print_json
from shardcall.client import Client
from shardcall_core.access.channel import open_channel
from shardcall_core.types.sizes import human

_SMALL = 16
_MIB = 1 << 20


@dataclass(frozen=True)
class Measurement:
    """The times of one operation.

    Attributes:
        name: what was timed.
        median_s: the median of all rounds, seconds.
        best_s: the shortest.
        ratio: the median divided by that of its floor; None for a floor.
        bytes_per_s: bytes moved both ways in a second; None where the size does not matter.
        calls_per_s: calls that ended in a second; None for a measurement of one at a time.
    """

    name: str
    median_s: float
    best_s: float
    ratio: float | None = None
    bytes_per_s: float | None = None
    calls_per_s: float | None = None


def _bench(
    connection: Connection,
    mib: Annotated[int, typer.Option("--mib", min=1, help="MiB of the large array.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each large measurement.")] = 7,
    calls: Annotated[int, typer.Option(min=1, help="Calls of each small measurement.")] = 200,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads that call at once.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Measure latency and throughput, each beside its floor.

    The figures are of this machine, this network and what else runs on both; compare ratios.
    """
    with connection.open() as client:
        measured = [
            *_latency(client, connection, calls, threads),
            *_throughput(client, mib * _MIB, rounds),
        ]
        shared = client._shared_memory is not None
    if as_json:
        print_json({"address": connection.address, "shared_memory": shared, "measurements": measured})
        return
    shown = console()
    shown.print(_table(connection.address, measured))
    shown.print(f"large arrays pass through {'memory shared with the server' if shared else 'messages of gRPC'}")


def _latency(client: Client, connection: Connection, calls: int, threads: int) -> list[Measurement]:
    small = np.arange(float(_SMALL))
    with open_channel(connection.where, tls=connection.encryption) as channel:
        check = channel.unary_unary(METHOD, request_serializer=bytes, response_deserializer=bytes)
        floor = _times(lambda: check(b"", timeout=connection.timeout), calls)
    call = partial(client.diff, small)
    one = _times(call, calls)
    with ThreadPoolExecutor(threads) as pool:
        begin = time.perf_counter()
        many = list(pool.map(lambda _: _timed(call), range(calls)))
        wall_s = time.perf_counter() - begin
    floor_s = statistics.median(floor)
    return [
        Measurement("floor: health check RPC", floor_s, min(floor)),
        Measurement(f"diff of {_SMALL} numbers", (middle := statistics.median(one)), min(one), middle / floor_s),
        Measurement(
            f"the same, {threads} threads",
            (middle := statistics.median(many)),
            min(many),
            middle / floor_s,
            calls_per_s=calls / wall_s,
        ),
    ]


def _throughput(client: Client, nbytes: int, rounds: int) -> list[Measurement]:
    array = client.empty(nbytes // 8)
    array[:] = 1.0
    out = np.empty_like(array)

    def copy_twice() -> None:
        np.copyto(out, array)
        np.copyto(array, out)

    floor = _times(copy_twice, rounds)
    call = _times(partial(client.copy, array), rounds)
    put = _times(lambda: client.put(array), rounds)
    floor_s, size = statistics.median(floor), human(nbytes)
    return [
        _moved(f"floor: numpy copies {size} twice", floor, 2 * nbytes),
        _moved(f"call: {size} there and back", call, 2 * nbytes, floor_s),
        _moved(f"put: {size} to the devices", put, nbytes, floor_s / 2),
    ]


def _moved(name: str, times: list[float], nbytes: int, floor_s: float | None = None) -> Measurement:
    middle = statistics.median(times)
    return Measurement(name, middle, min(times), None if floor_s is None else middle / floor_s, nbytes / middle)


def _times(work: Callable[[], object], rounds: int) -> list[float]:
    """Returns the seconds of each round, after one that is not counted and compiles."""
    work()
    return [_timed(work) for _ in range(rounds)]


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _table(address: str, measured: list[Measurement]) -> Table:
    table = Table(title=address, title_justify="left")
    table.add_column("")
    for name in ("median", "best", "× floor", "rate"):
        table.add_column(name, justify="right")
    for item in measured:
        rate = f"{human(int(item.bytes_per_s))}/s" if item.bytes_per_s else ""
        rate = f"{item.calls_per_s:,.0f}/s" if item.calls_per_s else rate
        ratio = "" if item.ratio is None else f"{item.ratio:.1f}"
        table.add_row(item.name, f"{item.median_s * 1e3:.3g} ms", f"{item.best_s * 1e3:.3g} ms", ratio, rate)
    return table


bench: Command = partial(connecting, argument=True)(_bench)

"""Rows, tables and claims of calls.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import transfer_claims
from harness.asking import Samples
from harness.report import Claim, milliseconds, ratio_claim, size_name, table

PROCESSES = 4
CALLERS = 32
DEPENDENT_CALLS = 1000
_KIB, _MIB = 1 << 10, 1 << 20
ARRAY_SIZES = (64 * _KIB, _MIB, 8 * _MIB)
_LARGE = 8 * _MIB


@dataclass(frozen=True)
class Row:
    """A row of a table: a job of a child process.

    Attributes:
        title: the title of the row.
        child: the name of the processes that run the job.
        what: the name of the job.
    """

    title: str
    child: str
    what: str


_DEVICES = {1: "1 device", 8: "8 devices"}


def _rows(what: str) -> dict[str, Row]:
    """Returns the rows of one caller (``calls``) or of many (``load``)."""
    ours = {
        f"{name}-{devices}": Row(f"shardcall, {title}, {on}", "client", f"{what}-{name}-{devices}")
        for name, title in (("tcp", "TCP"), ("tcp-unary", "TCP, unary calls"), ("uds", "UDS"))
        for devices, on in _DEVICES.items()
    }
    echoes = {
        "echo-tcp": Row("floor: gRPC echo, TCP", "echo", f"{what}-tcp"),
        "echo-uds": Row("floor: gRPC echo, UDS", "echo", f"{what}-uds"),
        "stream": Row("floor: echo over one stream, TCP", "echo", f"{what}-tcp-stream"),
    }
    workers = {
        f"worker{stream}-{devices}": Row(f"floor: {title} and a JAX worker, TCP, {on}", f"worker-{devices}", job)
        for stream, title, job in (
            ("", "gRPC", f"{what}-tcp"),
            ("-stream", "one stream", f"{what}-tcp-stream"),
        )
        for devices, on in _DEVICES.items()
    }
    return {**ours, **echoes, **workers}


ONE_CALLER = {
    **_rows("calls"),
    "jax-1": Row("floor: JAX in process, call, get, 1 device", "jax", "calls-1"),
    "jax-8": Row("floor: JAX in process, call, get, 8 devices", "jax", "calls-8"),
}
_MANY = _rows("load")
_SPREAD = (
    "tcp-1",
    "tcp-8",
    "tcp-unary-1",
    "uds-1",
    "echo-tcp",
    "stream",
    "worker-1",
    "worker-stream-1",
    "worker-stream-8",
)
_TOGETHER = ("tcp-1", "tcp-unary-1", "echo-tcp", "worker-stream-1")
MANY_CALLERS = {
    processes: {name: _MANY[name] for name in names} for processes, names in ((PROCESSES, _SPREAD), (1, _TOGETHER))
}
DEPENDENT = {
    "submitted": Row("shardcall, `client.submit`", "client", "submitted-tcp"),
    "kept": Row("shardcall, `client.call(…, keep=True)`", "client", "kept-tcp"),
    "kept-unary": Row("shardcall, `client.call(…, keep=True)`, unary calls", "client", "kept-tcp-unary"),
    "jax": Row("floor: JAX in process", "jax", "dependent"),
}
ARRAYS = {
    "tcp": Row("shardcall, TCP", "client", "tcp"),
    "flight": Row("peer: Arrow Flight, the same kernel", "flight", "halo"),
    "flight-echo": Row("peer: Arrow Flight, echo", "flight", "echo"),
    "echo-stream-tcp": Row("floor: gRPC stream echo, TCP", "echo", "stream-tcp"),
}
PYTHON_CALLS = {"tcp": "over a call stream", "tcp-unary": "unary"}
Measured = Mapping[str, Samples]
Rates = Mapping[str, list[float]]


@dataclass
class Figures:
    """All figures of a run; rows that could not be measured have none.

    Attributes:
        one_caller: seconds of round trips.
        many_callers: calls per second, by the number of processes.
        dependent: seconds of one of many dependent calls.
        arrays: seconds of an array's round trip, by size.
        python_calls: Python calls in the client and the front end, by transport: to the project's code, and to all.
    """

    one_caller: Measured
    many_callers: Mapping[int, Rates]
    dependent: Measured
    arrays: Mapping[int, Measured]
    python_calls: Mapping[str, Sequence[tuple[float, float]]]


def medians(measured: Measured) -> dict[str, float]:
    """Returns the median seconds of the rows that have figures."""
    return {name: statistics.median(samples.seconds) for name, samples in measured.items() if samples.seconds}


def _quotient(value: float | None, floor: float | None) -> str:
    return "" if value is None or floor is None else f"{value / floor:.2f}"


def _floors(figures: Mapping[str, float], name: str) -> list[str]:
    """Returns a figure divided by that of the bare echo, and by those of bare servers with a worker of its devices."""
    devices = name.rpartition("-")[2]
    return [
        _quotient(figures.get(name), figures.get(floor))
        for floor in ("echo-tcp", f"worker-{devices}", f"worker-stream-{devices}")
    ]


_FLOORS = ["÷ gRPC echo, TCP", "÷ gRPC and a JAX worker", "÷ one stream and a JAX worker"]


def one_caller_table(measured: Measured) -> list[str]:
    """Returns a table of medians and tails of one caller's round trips."""
    median = medians(measured)
    rows = [["one caller, ms", "median", "99 % within", *_FLOORS]]
    for name, row in ONE_CALLER.items():
        if name not in median:
            rows.append([row.title, *"-----"])
            continue
        seconds = measured[name].seconds
        tail = statistics.quantiles(seconds, n=100)[98] if len(seconds) > 1 else 0.0
        rows.append([row.title, milliseconds(median[name]), milliseconds(tail), *_floors(median, name)])
    return table(rows)


def _callers(processes: int) -> str:
    return f"{CALLERS} callers in {processes} processes" if processes > 1 else f"{CALLERS} callers in one process"


def many_callers_table(rates: Rates, processes: int) -> list[str]:
    """Returns a table of medians of calls per second."""
    median = {name: statistics.median(values) for name, values in rates.items() if values}
    rows = [[_callers(processes), "calls per second", *_FLOORS]]
    for name, row in MANY_CALLERS[processes].items():
        rows.append([row.title, *([f"{median[name]:.0f}", *_floors(median, name)] if name in median else "----")])
    return table(rows)


def dependent_table(measured: Measured) -> list[str]:
    """Returns a table of medians of the time of one of many dependent calls."""
    median = medians(measured)
    rows = [[f"one of {DEPENDENT_CALLS} dependent calls, ms", "median", "÷ JAX in process"]]
    for name, row in DEPENDENT.items():
        cells = [milliseconds(median[name]), _quotient(median[name], median.get("jax"))] if name in median else "--"
        rows.append([row.title, *cells])
    return table(rows)


def arrays_table(arrays: Mapping[int, Measured]) -> list[str]:
    """Returns a table of medians of an array's round trip by size, and of the ratios in the claims."""
    rows = [["an array there and back, ms", *map(size_name, arrays)]]
    by_size = [medians(measured) for measured in arrays.values()]
    for name, row in ARRAYS.items():
        rows.append([row.title, *(milliseconds(median[name]) if name in median else "-" for median in by_size)])
    rows.append(["÷ Arrow Flight", *(_quotient(median.get("tcp"), median.get("flight")) for median in by_size)])
    echo_ratios = [transfer_claims.floor_ratio(measured, "tcp") for measured in arrays.values()]
    return table(
        [*rows, ["÷ (gRPC stream echo + kernel)", *(f"{ratio:.2f}" if ratio else "" for ratio in echo_ratios)]]
    )


def python_calls_table(counted: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """Returns a table of the Python calls of a small call, by process."""
    rows = [["Python calls of a small call", "client", "with libraries", "front end", "with libraries"]]
    for transport, title in PYTHON_CALLS.items():
        cells = [f"{number:.0f}" for process in counted.get(transport, ()) for number in process]
        rows.append([title, *(cells or "----")])
    return table(rows)


def claims(figures: Figures) -> Iterator[Claim]:
    """Yields the claims about the figures that were measured, with their verdicts."""
    one = medians(figures.one_caller)
    if "tcp-1" in one:
        yield ratio_claim("one caller, 1 device: at most 1.6 × the bare echo", 1.6, one["tcp-1"] / one["echo-tcp"])
        more = one["tcp-8"] - one["echo-tcp"] - one["jax-8"]
        text = "one caller, 8 devices: at most the bare echo + JAX in process + 0.4 ms"
        yield Claim(text, f"+ {more * 1e3:.2f} ms", more <= 0.4e-3)
    for processes, rates in figures.many_callers.items():
        if rates["tcp-1"]:
            part = statistics.median(rates["tcp-1"]) / statistics.median(rates["echo-tcp"])
            text = f"{_callers(processes)}, 1 device: at least 1.5 × the bare echo's calls"
            yield Claim(text, f"{part:.2f} ×", part >= 1.5)
    if (submitted := medians(figures.dependent).get("submitted")) is not None:
        text = f"{DEPENDENT_CALLS} dependent calls: at most 0.15 ms each"
        yield Claim(text, f"{submitted * 1e3:.2f} ms", submitted <= 0.15e-3)
    for limit, process, (project_calls, _) in zip(
        (40, 60), ("client", "front end"), figures.python_calls.get("tcp", ()), strict=False
    ):
        yield Claim(
            f"a small call makes at most {limit} Python calls in the {process}",
            f"{project_calls:.0f}",
            project_calls <= limit,
        )
    yield from _array_claims(figures.arrays)


def _array_claims(arrays: Mapping[int, Measured]) -> Iterator[Claim]:
    for size, measured in arrays.items():
        median = medians(measured)
        if size < _LARGE and {"tcp", "flight"} <= set(median):
            text = f"{size_name(size)} over TCP: at most as long as Arrow Flight with the same kernel"
            yield ratio_claim(text, 1.0, median["tcp"] / median["flight"])
        ratio = transfer_claims.floor_ratio(measured, "tcp")
        if size == _LARGE and ratio is not None:
            yield ratio_claim(
                f"{size_name(size)} over TCP: at most 1.15 × (bare gRPC stream echo + kernel)", 1.15, ratio
            )

"""Cost of a small call, beside a bare gRPC echo, JAX without a server, and both without anything else.

    python benchmarks/calls.py [--rounds N] [--calls N] [--allocator tuned|default|both] [--output FILE.md]

64 bytes in each direction: median round trips of one caller, calls per second of 32, and the processor's time by part.
Every figure of a table comes from one run, in interleaved rounds. It judges claims at the end and gates nothing.
benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness import cpu_time
from harness.asking import BENCHMARKS, Child, Server, children_of, client_environment, run_rounds, server
from harness.processes import process_seconds
from harness.report import Claim, at_most, claim_table, machine, milliseconds, table

CALLERS = 32
PROCESSES = 4
ONE_CALLER = {
    "tcp-1": ("shardcall, TCP, 1 device", "client", "calls-tcp-1"),
    "tcp-8": ("shardcall, TCP, 8 devices", "client", "calls-tcp-8"),
    "uds-1": ("shardcall, UDS, 1 device", "client", "calls-uds-1"),
    "uds-8": ("shardcall, UDS, 8 devices", "client", "calls-uds-8"),
    "echo-tcp": ("floor: gRPC echo, TCP", "echo", "calls-tcp"),
    "echo-uds": ("floor: gRPC echo, UDS", "echo", "calls-uds"),
    "worker-1": ("floor: gRPC and a JAX worker, TCP, 1 device", "worker-1", "calls-tcp"),
    "worker-8": ("floor: gRPC and a JAX worker, TCP, 8 devices", "worker-8", "calls-tcp"),
    "jax-1": ("floor: JAX in process, call, get, 1 device", "jax", "calls-1"),
    "jax-8": ("floor: JAX in process, call, get, 8 devices", "jax", "calls-8"),
}
MANY_CALLERS = {
    "tcp-1": ("shardcall, TCP, 1 device", "client", "load-tcp-1"),
    "tcp-8": ("shardcall, TCP, 8 devices", "client", "load-tcp-8"),
    "uds-1": ("shardcall, UDS, 1 device", "client", "load-uds-1"),
    "uds-8": ("shardcall, UDS, 8 devices", "client", "load-uds-8"),
    "echo-tcp": ("floor: gRPC echo, TCP", "echo", "load-tcp"),
    "echo-uds": ("floor: gRPC echo, UDS", "echo", "load-uds"),
    "worker-1": ("floor: gRPC and a JAX worker, TCP, 1 device", "worker-1", "load-tcp"),
    "worker-8": ("floor: gRPC and a JAX worker, TCP, 8 devices", "worker-8", "load-tcp"),
}
Rates = Mapping[str, list[float]]


@dataclass
class Asked:
    """The processes that run while calls are measured.

    Attributes:
        server: ours.
        children: by name, as many processes as one of many callers needs.
    """

    server: Server
    children: Mapping[str, list[Child]]


@contextmanager
def started(tuned: bool, load_seconds: float) -> Iterator[Asked]:
    """The server, whose threads have names, and every process that is asked."""
    environment = client_environment(tuned)
    named = ":".join(filter(None, [str(BENCHMARKS / "harness" / "named_threads"), os.environ.get("PYTHONPATH", "")]))
    seconds = ["--load-seconds", str(load_seconds)]
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder), tuned=tuned, environment={"PYTHONPATH": named}) as running,
    ):
        unix = ["--unix-address", running.unix_address] if running.unix_address else []
        client = partial(Child, "peers.shardcall_client", running.address, *unix, *seconds, environment=environment)
        echo = partial(Child, "peers.grpc_echo", *seconds, environment=environment)
        children = {
            "client": [client() for _ in range(PROCESSES)],
            "echo": _callers(echo, echo()),
            **{f"worker-{n}": _callers(echo, echo("--worker-devices", str(n))) for n in (1, 8)},
            "jax": [Child("peers.in_process_jax", environment=environment)],
        }
        yield Asked(running, children)
        # The first of the callers of a floor ends the server of all.
        for several in children.values():
            for child in reversed(several):
                child.stop()


def _callers(echo: Callable[..., Child], first: Child) -> list[Child]:
    """As many processes as many callers need, all of the server that the first has started."""
    addresses = first.ask("addresses", 0)["addresses"]
    return [first, *(echo("--addresses", addresses) for _ in range(PROCESSES - 1))]


def one_caller(asked: Asked, calls: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of round trips, ``calls`` in every round; rows without measurements are left out."""
    requests = {name: (asked.children[child][0], what) for name, (_, child, what) in ONE_CALLER.items()}
    measured = run_rounds(requests, calls, rounds, "one caller")
    return {name: samples.seconds for name, samples in measured.items() if samples.seconds}


def many_callers(asked: Asked, rounds: int) -> Rates:
    """Calls per second, one figure a round; the round before the first counts for nothing."""
    rates: dict[str, list[float]] = {name: [] for name in MANY_CALLERS}
    for count in range(rounds + 1):
        print(f"{CALLERS} callers: round {count} of {rounds}", file=sys.stderr)
        for name in random.sample(list(MANY_CALLERS), len(MANY_CALLERS)):
            _, child, what = MANY_CALLERS[name]
            *_, rate = cpu_time.load(asked.children[child], what, CALLERS)
            if count and rate:
                rates[name].append(rate)
    return {name: values for name, values in rates.items() if values}


def processor_table(asked: Asked, calls: int) -> list[str]:
    """Microseconds of processor time a call, by part, for one caller and for many, and what would shrink each."""
    columns = {
        f"{callers}, {devices} device{'s' * (devices > 1)}": (alone, f"tcp-{devices}")
        for devices in (1, 8)
        for callers, alone in (("1 caller", True), (f"{CALLERS} callers", False))
    }
    ours = asked.children["client"]
    measured = [
        cpu_time.of_calls(asked.server, partial(_calls, ours, alone, transport, calls))
        for alone, transport in columns.values()
    ]
    totals = [_us(client + sum(parts.values())) for parts, client in measured]

    def of_floor(floor: Callable[[str], str]) -> list[str]:
        floors = [(alone, asked.children[floor(transport)]) for alone, transport in columns.values()]
        return [_us(_of_floor(partial(_calls, asks, alone, "tcp", calls), asks[0])) for alone, asks in floors]

    rows = [["CPU µs a call", *columns], ["client", *(_us(client) for _, client in measured)]]
    rows += [[part.title, *(_us(parts.get(part.title, 0.0)) for parts, _ in measured)] for part in cpu_time.PARTS]
    rows += [["together", *totals], ["bare gRPC echo, client and server together", *of_floor(lambda _: "echo")]]
    rows += [
        ["bare gRPC and a JAX worker, all together", *of_floor(lambda transport: transport.replace("tcp", "worker"))]
    ]
    ideas = [("client", cpu_time.CLIENT_IDEA), *((part.title, part.idea) for part in cpu_time.PARTS)]
    return [*table(rows), "", "What would shrink each:", "", *(f"* {title}: {idea}." for title, idea in ideas)]


def _calls(children: list[Child], alone: bool, transport: str, calls: int) -> tuple[int, float]:
    if not alone:
        return cpu_time.load(children, f"load-{transport}", CALLERS)[:2]
    answer = children[0].ask(f"calls-{transport}", calls)
    return answer["calls"], answer["cpu"]


def _of_floor(work: Callable[[], tuple[int, float]], first: Child) -> float:
    """Seconds a call of a floor's clients, its server and whatever that has started."""
    before = _seconds_below(first.pid)
    calls, client_s = work()
    return (client_s + _seconds_below(first.pid) - before) / calls


def _seconds_below(pid: int) -> float:
    return sum(process_seconds(child) + _seconds_below(child) for child in children_of(pid))


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"


_FLOORS = ["÷ gRPC echo, TCP", "÷ gRPC and a JAX worker, TCP"]


def _over_floors(medians: Mapping[str, float], name: str) -> list[str]:
    """A figure divided by the bare echo's, and by that of a bare server with a worker of as many devices."""
    floors = "echo-tcp", f"worker-{name.rpartition('-')[2]}"
    return [f"{medians[name] / medians[floor]:.2f}" if floor in medians else "" for floor in floors]


def round_trips(seconds: Mapping[str, list[float]]) -> list[str]:
    """Medians and tails of one caller's round trips."""
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [["one caller, ms", "median", "99 % within", *_FLOORS]]
    for name, (title, *_) in ONE_CALLER.items():
        if name not in medians:
            rows.append([title, *"----"])
            continue
        tail = statistics.quantiles(seconds[name], n=100)[98] if len(seconds[name]) > 1 else 0.0
        rows.append([title, *map(milliseconds, (medians[name], tail)), *_over_floors(medians, name)])
    return table(rows)


def rates_table(rates: Rates) -> list[str]:
    """Medians of calls per second."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    rows = [[f"{CALLERS} callers, as threads of {PROCESSES} processes", "calls per second", *_FLOORS]]
    for name, (title, *_) in MANY_CALLERS.items():
        cells = [f"{medians[name]:.0f}", *_over_floors(medians, name)] if name in medians else "---"
        rows.append([title, *cells])
    return table(rows)


def claims(seconds: Mapping[str, list[float]], rates: Rates) -> Iterator[Claim]:
    """The claims, with the measured figures and their verdicts."""
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rate = {name: statistics.median(values) for name, values in rates.items()}
    for transport in ("tcp", "uds"):
        if f"{transport}-1" not in medians:
            continue
        over = medians[f"{transport}-1"] / medians[f"echo-{transport}"]
        yield at_most(f"{transport.upper()}, 1 device: at most 1.6 × the bare echo", 1.6, over)
        more = medians[f"{transport}-8"] - medians[f"echo-{transport}"] - medians["jax-8"]
        text = f"{transport.upper()}, 8 devices: at most the bare echo + JAX in process + 0.4 ms"
        yield Claim(text, f"+ {more * 1e3:.2f} ms", more <= 0.4e-3)
        part = rate[f"{transport}-1"] / rate[f"echo-{transport}"]
        text = f"{transport.upper()}, 1 device: {CALLERS} callers make at least 0.45 × the bare echo's calls"
        yield Claim(text, f"{part:.2f} ×", part >= 0.45)


def section(tuned: bool, arguments: argparse.Namespace) -> list[str]:
    """All that is said about one setting of the allocator."""
    with started(tuned, arguments.load_seconds) as asked:
        measured = one_caller(asked, arguments.calls, arguments.rounds)
        rates = many_callers(asked, arguments.rounds)
        processor = processor_table(asked, arguments.calls * arguments.rounds)
    lines = [f"## The allocator {'tuned' if tuned else 'as it is'}", ""]
    for part in (round_trips(measured), rates_table(rates), processor, claim_table(claims(measured, rates))):
        lines += [*part, ""]
    return lines


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description="Measures small calls against bare floors.")
    parser.add_argument("--rounds", type=int, default=9, help="how often each row is asked (9)")
    parser.add_argument("--calls", type=int, default=200, help="of one caller in a round (200)")
    parser.add_argument("--load-seconds", type=float, default=2.0, help="of many callers in a round (2)")
    parser.add_argument("--allocator", choices=("tuned", "default", "both"), default="tuned")
    parser.add_argument("--output", type=Path, help="write the report there too")
    arguments = parser.parse_args()
    settings = {"tuned": [True], "default": [False], "both": [True, False]}[arguments.allocator]
    report = [
        "# Small calls",
        "",
        f"64 bytes each way, a difference on 1 or 8 devices; {arguments.rounds} rounds of {arguments.calls} calls of "
        f"one caller, and of {arguments.load_seconds:g} s of {CALLERS}.",
        *machine(("jax", "numpy", "grpcio", "protobuf"), {}),
        "",
    ]
    for tuned in settings:
        report += section(tuned, arguments)
    print("\n".join(report))
    if arguments.output:
        arguments.output.write_text("\n".join(report).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Cost of a small call, beside a bare gRPC echo, JAX without a server, and both without anything else.

    python benchmarks/calls.py [--rounds N] [--calls N] [--allocator tuned|default|both] [--output FILE.md]

64 bytes in each direction, over call streams and as unary calls: median round trips of one caller, calls per second of
32, and the processor's time by part; calls that depend on each other; the number of Python calls; arrays over TCP.
Every figure of a table comes from one run, in interleaved rounds. The claims at the end are judged and gate nothing.
benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import call_rows
import python_calls

from harness import cpu_time
from harness.asking import (
    BENCHMARKS,
    PEERS_DIR,
    Child,
    Samples,
    Server,
    children_of,
    client_environment,
    peer_python,
    run_rounds,
    server,
)
from harness.processes import process_seconds
from harness.report import claim_table, machine, size_name, table


@dataclass
class MeasuredProcesses:
    """The processes that run while calls are measured.

    Attributes:
        server: the shardcall server.
        children: the child processes by name, as many of each as the rows with many callers need.
    """

    server: Server
    children: Mapping[str, list[Child]]


@contextmanager
def started(tuned: bool, load_seconds: float) -> Iterator[MeasuredProcesses]:
    """Starts the server, whose threads have names, and all child processes, for the time of the body."""
    environment = client_environment(tuned)
    named = ":".join(filter(None, [str(BENCHMARKS / "harness" / "named_threads"), os.environ.get("PYTHONPATH", "")]))
    seconds = ["--load-seconds", str(load_seconds)]
    flight_python = peer_python(PEERS_DIR, "arrow_flight")
    with (
        tempfile.TemporaryDirectory() as folder,
        server(Path(folder), tuned=tuned, environment={"PYTHONPATH": named}) as running,
    ):
        unix = ["--unix-address", running.unix_address] if running.unix_address else []
        client = partial(Child, "peers.shardcall_client", running.address, *unix, *seconds, environment=environment)
        echo = partial(Child, "peers.grpc_echo", *seconds, environment=environment)
        children = {
            "client": [client() for _ in range(call_rows.PROCESSES)],
            "echo": _callers(echo, echo()),
            **{f"worker-{n}": _callers(echo, echo("--worker-devices", str(n))) for n in (1, 8)},
            "jax": [Child("peers.in_process_jax", environment=environment)],
            "flight": [Child("peers.arrow_flight", environment=environment, python=flight_python)],
        }
        yield MeasuredProcesses(running, children)
        # The first of the callers of a floor ends the server of all.
        for several in children.values():
            for child in reversed(several):
                child.stop()


def _callers(echo: Callable[..., Child], first: Child) -> list[Child]:
    """Returns as many processes as many callers need, all of which call the server that the first one has started."""
    addresses = first.ask("addresses", 0)["addresses"]
    return [first, *(echo("--addresses", addresses) for _ in range(call_rows.PROCESSES - 1))]


def rounds_of(
    asked: MeasuredProcesses, rows: Mapping[str, call_rows.Row], number: int, rounds: int, note: str
) -> dict[str, Samples]:
    """Runs the job of every row in its first process, once a round."""
    return run_rounds(
        {name: (asked.children[row.child][0], row.what) for name, row in rows.items()}, number, rounds, note
    )


def many_callers(asked: MeasuredProcesses, rounds: int) -> dict[int, call_rows.Rates]:
    """Measures calls per second by the number of processes, once a round, after a round that does not count."""
    rates: dict[int, dict[str, list[float]]] = {
        n: {name: [] for name in rows} for n, rows in call_rows.MANY_CALLERS.items()
    }
    asking = [(processes, name) for processes, rows in call_rows.MANY_CALLERS.items() for name in rows]
    for count in range(rounds + 1):
        print(f"{call_rows.CALLERS} callers: round {count} of {rounds}", file=sys.stderr)
        for processes, name in random.sample(asking, len(asking)):
            row = call_rows.MANY_CALLERS[processes][name]
            *_, rate = cpu_time.load(asked.children[row.child][:processes], row.what, call_rows.CALLERS)
            if count and rate:
                rates[processes][name].append(rate)
    return dict(rates)


def processor_table(asked: MeasuredProcesses, calls: int) -> list[str]:
    """Returns a table of microseconds of processor time a call, by part, and ideas to reduce each part."""
    columns = {
        f"{callers}, {devices} device{'s' * (devices > 1)}": (alone, f"tcp-{devices}")
        for devices in (1, 8)
        for callers, alone in (("1 caller", True), (f"{call_rows.CALLERS} callers", False))
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
        return cpu_time.load(children, f"load-{transport}", call_rows.CALLERS)[:2]
    answer = children[0].ask(f"calls-{transport}", calls)
    return answer["calls"], answer["cpu"]


def _of_floor(work: Callable[[], tuple[int, float]], first: Child) -> float:
    """Returns the processor time of a call in seconds: of a floor's clients, its server and their children."""
    before = _seconds_below(first.pid)
    calls, client_s = work()
    return (client_s + _seconds_below(first.pid) - before) / calls


def _seconds_below(pid: int) -> float:
    return sum(process_seconds(child) + _seconds_below(child) for child in children_of(pid))


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}"


def section(tuned: bool, arguments: argparse.Namespace) -> list[str]:
    """Returns the part of the report about one setting of the allocator."""
    calls, rounds = arguments.calls, arguments.rounds
    with started(tuned, arguments.load_seconds) as asked:
        figures = call_rows.Figures(
            one_caller=rounds_of(asked, call_rows.ONE_CALLER, calls, rounds, "one caller"),
            many_callers=many_callers(asked, rounds),
            dependent=rounds_of(
                asked, call_rows.DEPENDENT, call_rows.DEPENDENT_CALLS, arguments.dependent_rounds, "dependent calls"
            ),
            arrays={
                size: rounds_of(asked, call_rows.ARRAYS, size, rounds, size_name(size))
                for size in call_rows.ARRAY_SIZES
            },
            python_calls={transport: python_calls.summary(transport) for transport in call_rows.PYTHON_CALLS},
        )
        processor = processor_table(asked, calls * rounds)
    parts = [call_rows.one_caller_table(figures.one_caller)]
    parts += [call_rows.many_callers_table(rates, processes) for processes, rates in figures.many_callers.items()]
    parts += [call_rows.dependent_table(figures.dependent), call_rows.arrays_table(figures.arrays)]
    parts += [call_rows.python_calls_table(figures.python_calls), processor, claim_table(call_rows.claims(figures))]
    lines = [f"## The allocator {'tuned' if tuned else 'as it is'}", ""]
    for part in parts:
        lines += [*part, ""]
    return lines


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description="Measures small calls against bare floors.")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each row (7)")
    parser.add_argument("--calls", type=int, default=200, help="of one caller in a round (200)")
    parser.add_argument("--load-seconds", type=float, default=1.0, help="of many callers in a round (1)")
    parser.add_argument("--dependent-rounds", type=int, default=3, help="of the calls that depend on each other (3)")
    parser.add_argument("--allocator", choices=("tuned", "default", "both"), default="tuned")
    parser.add_argument("--output", type=Path, help="write the report there too")
    arguments = parser.parse_args()
    settings = {"tuned": [True], "default": [False], "both": [True, False]}[arguments.allocator]
    report = [
        "# Small calls",
        "",
        f"64 bytes each way, a difference on 1 or 8 devices; {arguments.rounds} rounds of {arguments.calls} calls of "
        f"one caller, and of {arguments.load_seconds:g} s of {call_rows.CALLERS}.",
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

"""Cost of several worker processes: the time of a launch, and the bytes sent to and from each host.

    python benchmarks/hosts.py [--only SECTION,…] [--rounds N] [--size N] [--real-time] [--output FILE.md]

Sections: launch, transfer, scaling. All processes run on this machine, with 8 devices in total; the floor is a
server with a single worker and no agent. Figures are medians of rounds, which call every server once in random order.
The claims at the end are judged and gate nothing. benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from host_cases import Case, extra_seconds, large, run_rounds, small
from host_clusters import Cluster, Shape, running, temporary_tokens

from harness.report import Claim, claim_table, machine, milliseconds, size_name, table

Section = tuple[list[str], list[Claim]]
DEVICES = 8
FLOOR = Shape(0, DEVICES)
SHARED = [Shape(n, DEVICES // n) for n in (1, 2, 4)]
BY_MESSAGES = [Shape(n, DEVICES // n, shares_memory=False) for n in (1, 2, 4)]
PROCESSES = (1, 2, 4, 8)
FAR = (16, 64)
_LIMIT_S = 0.5e-3
_LIMIT_BYTES = 1.02
_PHASES = ("receive", "queue", "place", "execute", "gather", "send")


@dataclass(frozen=True)
class Parameters:
    """The parameters of a measurement.

    Attributes:
        rounds: the number of rounds.
        size: the number of rows, and of columns, of the large difference.
        real_time: whether the servers have real-time priority.
    """

    rounds: int
    size: int
    real_time: bool


def launch(parameters: Parameters) -> Section:
    """Measures calls with 8 × 8 numbers, with and without a collective."""
    with ExitStack() as stack:
        clusters = [stack.enter_context(running(shape)) for shape in (FLOOR, *SHARED, *BY_MESSAGES)]
        pairs = [(cluster, small(kernel, DEVICES)) for cluster in clusters for kernel in ("add", "diff")]
        measured = run_rounds(pairs, parameters.rounds, real_time=parameters.real_time)
        sent = {str(c.shape): _sent_for(c, small("add", DEVICES)) for c in clusters if not c.shape.shares_memory}
    head = ["processes × devices, link", "ms", "÷ floor", "over 1 × 8", "execute", "front end µs", "agents µs"]
    rows = [[*head, "workers µs", "+ for a collective"]]
    add, diff = (small(kernel, DEVICES).title for kernel in ("add", "diff"))
    floor = measured[str(FLOOR), add]
    for cluster in clusters:
        shape = cluster.shape
        base, samples = Shape(1, DEVICES, shape.shares_memory), measured[str(shape), add]
        rows.append(
            [
                str(shape),
                milliseconds(samples.median),
                f"{samples.median / floor.median:.2f}",
                _signed(extra_seconds(measured, (str(shape), add), (str(base), add))) if shape.hosts > 1 else "",
                milliseconds(samples.phase("execute")),
                *(f"{samples.cpu_us(process):.0f}" for process in ("front end", "agents", "workers")),
                _signed(extra_seconds(measured, (str(shape), diff), (str(shape), add))),
            ]
        )
    two, one = (str(SHARED[1]), add), (str(SHARED[0]), add)
    text = "launch overhead of a second worker process: at most 0.5 ms over one"
    claims = [
        _overhead_claim(text, extra_seconds(measured, two, one)),
        _overhead_claim(f"{text}, and over the floor", extra_seconds(measured, two, (str(FLOOR), add))),
    ]
    notes = [f"* {shape}: {text}" for shape, text in sent.items()]
    return [*table(rows), "", "Bytes of one such call, by host:", "", *notes], claims


def _sent_for(cluster: Cluster, case: Case) -> str:
    """Returns the bytes of a call's commands and answers by host, as text."""
    many = 50
    before = cluster.traffic()
    for _ in range(many):
        case.ask(cluster)
    after = cluster.traffic()
    return ", ".join(
        f"{name} sent {(after[name][0] - before[name][0]) / many:.0f}, "
        f"received {(after[name][1] - before[name][1]) / many:.0f}"
        for name in after
    )


def transfer(parameters: Parameters) -> Section:
    """Measures the phases of calls with large arrays, and the bytes that each host receives and sends."""
    cases = large(parameters.size, DEVICES)
    with ExitStack() as stack:
        clusters = [stack.enter_context(running(shape)) for shape in (FLOOR, *SHARED, *BY_MESSAGES)]
        measured = run_rounds(
            [(cluster, case) for cluster in clusters for case in cases],
            parameters.rounds,
            1,
            real_time=parameters.real_time,
        )
        moved = [
            (case, cluster, *_moved(cluster, case))
            for case in cases
            for cluster in clusters
            if not cluster.shape.shares_memory
        ]
    lines: list[str] = []
    for case in cases:
        floor = measured[str(FLOOR), case.title].median
        rows = [
            [f"{case.title}, ms", "round trip", "÷ floor", *("queue, link" if p == "queue" else p for p in _PHASES)]
        ]
        for cluster in clusters:
            samples = measured[str(cluster.shape), case.title]
            phases = (milliseconds(samples.phase(phase)) for phase in _PHASES)
            rows.append([str(cluster.shape), milliseconds(samples.median), f"{samples.median / floor:.2f}", *phases])
        lines += [*table(rows), ""]
    head = ["by messages; bytes of the host with most", "place: held", "sent", "÷ held", "execute: by its sockets"]
    rows = [[*head, "gather: returned", "received", "÷ returned"]]
    worst = 0.0
    for case, cluster, (held, sent), between, (returned, received) in moved:
        rows.append(
            [f"{case.title}, {cluster.shape.hosts} × {cluster.shape.devices}", f"{max(held):,}", f"{max(sent):,}"]
        )
        ratios = [s / h for s, h in zip(sent, held, strict=True)]
        rows[-1] += [f"{max(ratios):.4f}", f"{between:,}", f"{max(returned):,}", f"{max(received):,}"]
        rows[-1] += [f"{max(r / g for r, g in zip(received, returned, strict=True) if g):.4f}"]
        worst = max(worst, *ratios)
    text = f"bytes sent to each host are at most {_LIMIT_BYTES} × the bytes that its devices hold, commands included"
    return [*lines, *table(rows)], [Claim(text, f"{worst:.4f} ×", worst <= _LIMIT_BYTES)]


def _moved(cluster: Cluster, case: Case) -> tuple[tuple[list[int], list[int]], int, tuple[list[int], list[int]]]:
    """Returns bytes of a call: held and sent, by host; sent by the busiest worker to others; returned and received."""
    held, returned = case.host_bytes(cluster)
    before, (_, sockets_before) = cluster.traffic(), cluster.sockets()
    case.ask(cluster)
    after, (_, sockets_after) = cluster.traffic(), cluster.sockets()
    sent, received = ([after[name][direction] - before[name][direction] for name in after] for direction in (0, 1))
    between = max(b - a for a, b in zip(sockets_before, sockets_after, strict=True))
    return (held, sent), between, (returned, received)


def scaling(parameters: Parameters) -> Section:
    """Measures meshes of processes with one device each, and fits lines to the figures that grow with them."""
    head = ["processes × 1 device, link", "start s", "add ms", "diff ms", "front end µs", "agents µs", "workers µs"]
    rows = [[*head, "files", "connections of a worker", "large diff ms", "link and place ms", "front end ms"]]
    lines: list[str] = []
    for shares_memory in (True, False):
        add_s, front_s, large_front_s = [], [], []
        for n in PROCESSES:
            with running(Shape(n, 1, shares_memory)) as cluster:
                asked = [small("add", n), small("diff", n)]
                measured = run_rounds(
                    [(cluster, case) for case in asked], parameters.rounds, real_time=parameters.real_time
                )
                case = large(parameters.size, n)[0]
                big = run_rounds([(cluster, case)], parameters.rounds, 1, real_time=parameters.real_time)[
                    str(cluster.shape), case.title
                ]
                add, diff = (measured[str(cluster.shape), one.title] for one in asked)
                link_s = big.phase("queue") + big.phase("place")
                rows.append(
                    [
                        str(cluster.shape),
                        f"{cluster.start_s:.1f}",
                        *map(milliseconds, (add.median, diff.median)),
                        *(f"{add.cpu_us(process):.0f}" for process in ("front end", "agents", "workers")),
                        str(cluster.client.usage().descriptors),
                        str(max(cluster.sockets()[0])),
                        *map(milliseconds, (big.median, link_s, big.cpu_us("front end") / 1e6)),
                    ]
                )
                add_s.append(add.median)
                front_s.append(add.cpu_us("front end") / 1e6)
                large_front_s.append(big.cpu_us("front end") / 1e6)
        link = "shared memory" if shares_memory else "by messages"
        lines += [
            f"* {link}: a small call {_line(add_s)} on this machine; the front end's processor {_line(front_s)};",
            f"  for a difference of {size_name(parameters.size**2 * 8)} each way {_line(large_front_s)}.",
        ]
    return [*table(rows), "", "Least squares over the number of processes n, in ms:", "", *lines], []


def _line(seconds: Sequence[float]) -> str:
    """Fits a line to times by the number of processes, and extrapolates it."""
    slope, start = np.polyfit(PROCESSES, np.array(seconds) * 1e3, 1)
    far = ", ".join(f"{start + slope * n:.1f} at {n}" for n in FAR)
    return f"{start:.2f} + {slope:.3f} n ({far})"


def _signed(seconds: float) -> str:
    return f"{seconds * 1e3:+.2f}"


def _overhead_claim(text: str, seconds: float) -> Claim:
    return Claim(text, f"{seconds * 1e3:+.2f} ms", seconds <= _LIMIT_S)


SECTIONS: dict[str, tuple[str, Callable[[Parameters], Section]]] = {
    "launch": ("A launch: 8 × 8 float64 each way, 8 devices; processor time is of one call", launch),
    "transfer": ("Large arrays, NumPy in to NumPy out", transfer),
    "scaling": ("What grows with processes", scaling),
}


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description="Measures meshes of several worker processes.")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections, of {', '.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, default=15, help="number of rounds (15)")
    parser.add_argument("--size", type=int, default=2048, help="rows and columns of the large difference (2048)")
    parser.add_argument("--real-time", action="store_true", help="run with real-time priority; needs root")
    parser.add_argument("--output", type=Path, help="write the report there too, as markdown")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - set(SECTIONS)):
        parser.error(f"there is no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    report = ["# Several hosts", "", *machine(("jax", "numpy", "grpcio"), {}), f"Medians of {arguments.rounds} rounds."]
    report += ["Calls ran at a real-time priority, since the machine was busy."] if arguments.real_time else []
    parameters = Parameters(arguments.rounds, arguments.size, arguments.real_time)
    claims: list[Claim] = []
    with temporary_tokens():
        for name in names:
            title, section = SECTIONS[name]
            lines, section_claims = section(parameters)
            report += ["", f"## {title}", "", *lines]
            claims += section_claims
    report += ["", "## Claims", "", *claim_table(claims)]
    print("\n".join(report))
    if arguments.output:
        arguments.output.write_text("\n".join(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

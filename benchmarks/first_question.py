"""Cost of a difference along a sharded axis, beside its floor and its peers: the first question.

    python benchmarks/first_question.py [--rounds N] [--rows N] [--columns N] [--output FILE.md]

Every figure of the table comes from one run, in interleaved rounds: a round runs every case once, so that other
load of the machine affects all cases alike. Figures are medians of the rounds. The claims at the end are judged and
gate nothing. benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np

import shardcall as sc
from shardcall import P
from shardcall_server.launcher import tuned_environment, worker_environment

MESHES = ((1, 1), (8, 1), (1, 8), (4, 2))
IN_PROCESS = {
    "copy": "floor: jnp.copy",
    "pass": "floor: x + 1",
    "diff": "peer: jax.jit(jnp.diff)",
    "in-process halo": "the server's halo in process",
}
ON_SERVER = {"halo": "server: halo", "gspmd": "server: gspmd"}
SPEC = P("x", "y")
Case = tuple[str, int, int]
ONE_DEVICE: Case = ("diff", 1, 1)
Ask = Callable[[str, int, int], float]


@dataclass
class Samples:
    """The times of one case in seconds, one for each round.

    Attributes:
        seconds: the time of the operation; on a server, of the kernel alone.
        total: the server's wall time; empty without a server.
        round_trip: the caller's wall time; empty without a server.
    """

    seconds: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    round_trip: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of ``seconds``."""
        return statistics.median(self.seconds)

    @property
    def counted(self) -> float:
        """The share of the caller's wall time that the server's timing covers: the median of the quotients."""
        return statistics.median(t / r for t, r in zip(self.total, self.round_trip, strict=True))


Measured = Mapping[Case, Samples]


@contextmanager
def in_process(rows: int, columns: int) -> Iterator[Ask]:
    """Starts a process that runs JAX on request, without the server and with its allocator."""
    script = Path(__file__).with_name("in_process.py")
    command = [sys.executable, str(script), str(rows), str(columns)]
    environment = worker_environment(tuned_environment(os.environ))
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(what: str, x: int, y: int) -> float:
            print(what, x, y, file=stdin, flush=True)
            answer = stdout.readline()
            if not answer:
                sys.exit("the process that runs JAX beside the server has ended; its error stands above")
            return float(answer)

        yield ask
        stdin.close()


def measure(client: sc.Client, ask: Ask, x: np.ndarray, rounds: int) -> tuple[Measured, bool]:
    """Runs every case once a round, after a round that compiles and does not count.

    Returns:
        The samples, and whether every result equals NumPy's bit for bit.
    """
    cases: dict[Case, Callable[[Samples], object]] = {("numpy", 1, 1): partial(_ask_numpy, x)}
    expected = np.diff(x, axis=0, prepend=0.0)
    equal: list[bool] = []
    for mx, my in MESHES:
        for what in IN_PROCESS:
            cases[what, mx, my] = partial(_ask_process, ask, what.removeprefix("in-process "), mx, my)
        for strategy in ON_SERVER:
            cases[strategy, mx, my] = partial(_ask_server, client, x, expected, equal, strategy, sc.Mesh(x=mx, y=my))
    for case in cases.values():
        case(Samples())
    measured = {name: Samples() for name in cases}
    # What a case costs depends on what ran just before it, so no case may always come first.
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for name, case in random.sample(list(cases.items()), len(cases)):
            case(measured[name])
    return measured, all(equal)


def _ask_numpy(x: np.ndarray, samples: Samples) -> None:
    began = time.perf_counter()
    np.diff(x, axis=0, prepend=0.0)
    samples.seconds.append(time.perf_counter() - began)


def _ask_process(ask: Ask, what: str, mx: int, my: int, samples: Samples) -> None:
    samples.seconds.append(ask(what, mx, my))


def _ask_server(
    client: sc.Client,
    x: np.ndarray,
    expected: np.ndarray,
    equal: list[bool],
    strategy: str,
    mesh: sc.Mesh,
    samples: Samples,
) -> None:
    began = time.perf_counter()
    result = client.diff(x, axis=0, prepend=0.0, mesh=mesh, spec=SPEC, strategy=strategy)
    samples.round_trip.append(time.perf_counter() - began)
    samples.total.append(result.timing.total)
    samples.seconds.append(result.timing.execute)
    if len(equal) < len(MESHES) * len(ON_SERVER):  # the first of each; comparing them all would take a third more
        equal.append(np.array_equal(result.array, expected))


def table(measured: Measured) -> list[str]:
    """Returns the figures as a table in Markdown."""
    header = ["mesh", "what", "ms", "÷ one device", "÷ x + 1", "÷ copy", "round trip, ms", "total ÷ round trip"]
    names = {**IN_PROCESS, **ON_SERVER}
    lines = []
    for (what, x, y), samples in measured.items():
        compared = [measured[case].median for case in (ONE_DEVICE, ("pass", x, y), ("copy", x, y))]
        ratios = [f"{samples.median / other:.2f}" for other in compared]
        called = (
            [_ms(statistics.median(samples.round_trip)), f"{samples.counted:.2f}"] if samples.round_trip else ["", ""]
        )
        if what == "numpy":
            lines.append(["", "np.diff on one core", _ms(samples.median), ratios[0], "", "", *called])
        else:
            lines.append([f"({x},{y})", names[what], _ms(samples.median), *ratios, *called])
    return _aligned([header, *lines])


def claims(measured: Measured, equal: bool) -> list[tuple[str, str, bool]]:
    """Returns the claims, with the measured figures and their verdicts."""
    halo, gspmd = measured["halo", 8, 1].median, measured["gspmd", 8, 1].median
    counted = [samples.counted for samples in measured.values() if samples.round_trip]
    rows = [("every result is np.diff's, bit for bit", "", equal)]
    rows.append(("(8,1): halo is at least 8 × as fast as gspmd", f"{gspmd / halo:.1f} ×", gspmd >= 8 * halo))
    for limit, other, case in (
        (1.1, "one device on the server", ("gspmd", 1, 1)),
        (1.1, "jax.jit(jnp.diff) on one device in process", ONE_DEVICE),
        (1.15, "x + 1 on the same mesh in process", ("pass", 8, 1)),
        (1.15, "jnp.copy on the same mesh in process", ("copy", 8, 1)),
    ):
        ratio = halo / measured[case].median
        rows.append((f"(8,1): halo takes at most {limit} × {other}", f"{ratio:.2f} ×", ratio <= limit))
    peer = gspmd / measured["diff", 8, 1].median
    rows.append(("(8,1): gspmd is within 15 % of jax.jit(jnp.diff) in process", f"{peer:.2f} ×", 0.85 <= peer <= 1.15))
    low, high = min(counted), max(counted)
    rows.append(
        ("the server's clock counts 0.5 to 1.0 of the caller's", f"{low:.2f} to {high:.2f}", low >= 0.5 and high <= 1.0)
    )
    return rows


def machine(info: sc.ServerInfo) -> list[str]:
    """Returns a description of this machine and of the server."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = {"JAX": info.versions.jax, "NumPy": np.__version__, "grpcio": version("grpcio")}
    return [
        f"{len(os.sched_getaffinity(0))} cores of {_cpu()}, {memory:.0f} GiB, {platform.system()} {platform.release()}",
        f"{len(info.devices)} {info.platform} devices; Python {platform.python_version()}, "
        + ", ".join(f"{name} {number}" for name, number in versions.items()),
    ]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = 2  # columns of text; the rest are numbers
    lines = [
        "| "
        + " | ".join(f"{c:<{w}}" if i < left else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i < left else ":") for i, w in enumerate(widths)) + "|"
    return [lines[0], rule, *lines[1:]]


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description="Measures a difference along a sharded axis against its floors.")
    parser.add_argument("--rounds", type=int, default=9, help="runs of each case (9)")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--output", type=Path, help="write the report there too, as markdown")
    arguments = parser.parse_args()
    rows, columns = arguments.rows, arguments.columns
    x = np.random.default_rng(0).standard_normal((rows, columns))
    with sc.local(devices=8) as client, in_process(rows, columns) as ask:
        measured, equal = measure(client, ask, x, arguments.rounds)
        about = machine(client.server_info())
    report = [
        "# A difference along a sharded axis",
        "",
        f"{rows} × {columns} float64 ({x.nbytes / 2**20:.0f} MiB), axis 0, prepend 0.0, sharded {SPEC}; "
        f"medians of {arguments.rounds} rounds.",
        *about,
        "",
        *table(measured),
        "",
        *_aligned(
            [["holds", "claim", "measured"], *(["yes" if ok else "NO", *text] for *text, ok in claims(measured, equal))]
        ),
    ]
    print("\n".join(report))
    if arguments.output:
        arguments.output.write_text("\n".join(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

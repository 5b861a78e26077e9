"""Programs of arrays by a client, beside `jax.jit` in process and NumPy.

    python benchmarks/programs.py [--only NAME,NAME] [--mib N] [--rounds N] [--output FILE.md]

A program is one function of an array namespace (program_cases.py). Arrays are on the devices beforehand and stay there.
Every figure of a row comes from one run, in interleaved rounds. Nothing is gated.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness.asking import Child, Samples, client_environment, run_rounds, server
from harness.report import machine, milliseconds, table
from program_cases import CASES, SMALL_CASES, Case

_ALL_CASES = {**CASES, **SMALL_CASES}
_JAX_JOBS = {"one": "jax.jit, 1", "gspmd": "GSPMD, 8", "by_hand": "by hand, 8"}
_CLIENT_JOBS = {"numpy": "NumPy", "jit_1": "jit, 1", "jit_8": "jit, 8", "eager_1": "eager, 1", "eager_8": "eager, 8"}
_TIMES = ("numpy", "one", "gspmd", "by_hand", "jit_1", "jit_8", "eager_1", "eager_8")
_TITLES = {**_JAX_JOBS, **_CLIENT_JOBS}
_RATIOS = (
    *("jit ÷ jax.jit, 1", "kernel ÷ jax.jit, 1", "jit ÷ best, 8", "kernel ÷ best, 8"),
    *("eager, 1 ÷ NumPy", "eager, 8 ÷ NumPy", "jit, 1 ÷ NumPy", "jit, 8 ÷ NumPy"),
)


class Row:
    """The figures of a program.

    Args:
        case: the program.
        samples: the answers by job.
    """

    def __init__(self, case: Case, samples: Mapping[str, Samples]) -> None:
        self._title = case.title
        self._samples = samples
        self._medians = {job: statistics.median(one.seconds) for job, one in samples.items() if one.seconds}
        self._kernels = {job: statistics.median(one.execute) for job, one in samples.items() if one.execute}

    @property
    def times(self) -> list[str]:
        """The milliseconds of all jobs, and the names of those whose results differ from NumPy's."""
        seconds = [*map(self._medians.get, _TIMES), *map(self._kernels.get, ("jit_1", "jit_8"))]
        wrong = [_TITLES[job] for job, one in self._samples.items() if not one.right]
        times = ["-" if s is None else milliseconds(s) for s in seconds]
        return [self._title, *times, f"not {'; '.join(wrong)}" if wrong else "all"]

    @property
    def ratios(self) -> list[str]:
        """The ratios to JAX and to NumPy, by the callers' clocks and by the server's."""
        best = min((self._medians[job] for job in ("gspmd", "by_hand") if job in self._medians), default=None)
        numpy, one = self._medians.get("numpy"), self._medians.get("one")
        seconds = {**self._medians, **{f"{job}: kernel": kernel for job, kernel in self._kernels.items()}}
        pairs = (
            *(("jit_1", one), ("jit_1: kernel", one), ("jit_8", best), ("jit_8: kernel", best)),
            *(("eager_1", numpy), ("eager_8", numpy), ("jit_1", numpy), ("jit_8", numpy)),
        )
        return [self._title, *(f"{seconds[job] / base:.2f}" if base and job in seconds else "-" for job, base in pairs)]

    @property
    def errors(self) -> list[str]:
        """The errors of jobs that failed."""
        failed = {job: one.error for job, one in self._samples.items() if one.error}
        return [f"- {self._title}, {_TITLES[job]}: {error}" for job, error in failed.items()]


def measured(address: str, names: list[str], nbytes: int, rounds: int) -> list[Row]:
    """Returns a row for each program.

    Args:
        address: the address of the server.
        names: the names of the programs.
        nbytes: the bytes of a large array.
        rounds: the number of rounds.
    """
    environment = client_environment(tuned=True)
    ours = Child("peers.program_client", address, environment=environment)
    jax = Child("peers.program_jax", environment=environment)
    rows = []
    for name in names:
        case = _ALL_CASES[name]
        requests = {job: (ours, f"{job}:{name}") for job in _CLIENT_JOBS}
        requests |= {job: (jax, f"{job}:{name}") for job in _JAX_JOBS if job != "by_hand" or case.margin}
        rows.append(Row(case, run_rounds(requests, nbytes, rounds, name)))
    for child in (ours, jax):
        child.stop()
    return rows


def report(rows: list[Row], heading: list[str]) -> list[str]:
    """Returns the report: times, ratios and errors."""
    times = ["ms", *(_TITLES[job] for job in _TIMES), "jit, 1: kernel", "jit, 8: kernel", "close to NumPy"]
    times_of_rows = table([times, *(row.times for row in rows)])
    ratios = table([["program", *_RATIOS], *(row.ratios for row in rows)])
    return [*heading, "", *times_of_rows, "", *ratios, "", *(error for row in rows for error in row.errors)]


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description="Measures programs of arrays beside JAX and NumPy.")
    parser.add_argument("--only", default=",".join(_ALL_CASES), help=f"the programs: {', '.join(_ALL_CASES)}")
    parser.add_argument("--mib", type=float, default=64, help="the size of a large array (64 MiB)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path, help="write the report there too")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in _ALL_CASES]:
        parser.error(f"there is no program {', '.join(unknown)}; there are {', '.join(_ALL_CASES)}")
    before = os.getloadavg()[0]
    # A warm-up would take the processors, and programs on disk may be those of another branch.
    added = {"SHARDCALL_WARM_UP_S": "0", "SHARDCALL_CACHE_DIR": ""}
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), tuned=True, environment=added) as ours:
        rows = measured(ours.address, names, int(arguments.mib * 2**20), arguments.rounds)
    heading = [
        "# Programs of arrays",
        "",
        f"Large arrays of {arguments.mib:g} MiB, {arguments.rounds} rounds; "
        f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after.",
        *machine(("jax", "numpy", "grpcio"), {}),
    ]
    text = "\n".join(report(rows, heading)).rstrip()
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

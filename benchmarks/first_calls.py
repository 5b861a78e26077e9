"""First calls of functions and programs of NumPy on small arrays, and starts of servers, beside `jax.numpy`.

    python benchmarks/first_calls.py [--rounds N]

Each round starts, one after the other, processes with JAX, a server with nothing on disk for the functions, one for the
programs, and one with what the first has left on disk. The claims at the end are judged and gate nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.asking import Child, client_environment, server
from harness.report import Claim, claim_table, milliseconds, ratio_claim, table
from peers.function_calls import FUNCTIONS
from program_cases import EAGER_CASES

_LATER_ROUNDS = 10
_FIRST_LIMIT, _LATER_LIMIT, _START_LIMIT, _START_MORE_S = 1.5, 3.5, 1.6, 0.5
_AGAIN_LIMIT, _PROGRAMS_LIMIT = 0.3, 2.0
_COLUMNS = (("first", "jax"), ("first", "shardcall"), ("again", "shardcall"), ("later", "jax"), ("later", "shardcall"))
_TITLES = ("jax, first", "first", "first, from disk", "jax, later", "later")

Times = dict[str, list[float]]
"""The seconds of each function, and of all together."""


class Measured:
    """The seconds of functions and programs, by who computes them, in which calls, and by name."""

    def __init__(self) -> None:
        self.wrong: set[str] = set()
        self._samples: dict[tuple[str, str], Times] = {}
        self._environment = client_environment(tuned=True)

    def ask(self, who: str, address: Sequence[str], jobs: Mapping[str, tuple[str, int]]) -> float:
        """Asks a new process for jobs, each a request and its number, and returns the seconds until it was ready."""
        began = time.perf_counter()
        child = Child("peers.function_calls", *address, environment=self._environment)
        child.ask("start", 0)
        ready_s = time.perf_counter() - began
        for kind, request in jobs.items():
            answer = child.ask(*request)
            if not answer.get("right", True):
                self.wrong.add(who)
            names = EAGER_CASES if kind == "program" else FUNCTIONS
            for name, seconds in zip((*names, "all"), (*answer["seconds"], sum(answer["seconds"])), strict=True):
                self._samples.setdefault((kind, who), {}).setdefault(name, []).append(seconds)
        child.stop()
        return ready_s

    def median(self, kind: str, who: str, name: str = "all") -> float:
        """Returns the median of the rounds, in seconds."""
        return statistics.median(self._samples[kind, who][name])

    def ratio(self, kind: str, name: str = "all", to: str = "") -> float:
        """Returns the time of shardcall's calls by that of JAX's, of the same kind or another."""
        return self.median(kind, "shardcall", name) / self.median(to or kind, "jax", name)


def measure(rounds: int) -> tuple[Measured, dict[str, float]]:
    """Returns the times of functions and programs, and the median seconds of starts."""
    measured = Measured()
    starts: Times = {"shardcall": [], "jax": []}
    functions, program = {"first": ("call", 1), "later": ("call", _LATER_ROUNDS)}, {"program": ("programs", 0)}
    for _ in range(rounds):
        starts["jax"].append(measured.ask("jax", (), functions))
        measured.ask("jax", (), program)
        with tempfile.TemporaryDirectory() as folder:
            for jobs, cache in ((functions, folder), (program, ""), ({"again": ("call", 1)}, folder)):
                with server(Path(folder), tuned=True, environment={"SHARDCALL_CACHE_DIR": cache}) as ours:
                    measured.ask("shardcall", (ours.address,), jobs)
                if jobs is functions:
                    starts["shardcall"].append(ours.start_s)
    return measured, {who: statistics.median(seconds) for who, seconds in starts.items()}


def main() -> int:
    """Measures, and prints tables and claims."""
    parser = argparse.ArgumentParser(description="Measures first calls and starts beside JAX.")
    parser.add_argument("--rounds", type=int, default=5)
    measured, start = measure(parser.parse_args().rounds)
    rows = [["ms", *_TITLES, "first ÷ jax", "from disk ÷ jax, first", "later ÷ jax"]]
    for name in (*FUNCTIONS, "all"):
        ratios = measured.ratio("first", name), measured.ratio("again", name, "first"), measured.ratio("later", name)
        times = (milliseconds(measured.median(*column, name)) for column in _COLUMNS)
        rows.append([name, *times, *(f"{ratio:.2f}" for ratio in ratios)])
    programs = [["ms", "jax", "shardcall", "÷"]]
    for name in (*EAGER_CASES, "all"):
        times = (milliseconds(measured.median("program", who, name)) for who in ("jax", "shardcall"))
        title = EAGER_CASES[name].title if name in EAGER_CASES else name
        programs.append([title, *times, f"{measured.ratio('program', name):.2f}"])
    programs.append(["start", *(milliseconds(start[who]) for who in ("jax", "shardcall")), ""])
    later = statistics.median(measured.ratio("later", name) for name in FUNCTIONS)
    claims = [
        ratio_claim("first calls / jax", _FIRST_LIMIT, measured.ratio("first")),
        ratio_claim("first calls from disk / jax, first", _AGAIN_LIMIT, measured.ratio("again", to="first")),
        ratio_claim("later calls / jax, median of the functions", _LATER_LIMIT, later),
        *(
            ratio_claim(f"{case.title}, first run / jax", _PROGRAMS_LIMIT, measured.ratio("program", name))
            for name, case in EAGER_CASES.items()
        ),
        ratio_claim(
            f"(start - {_START_MORE_S} s) / JAX's", _START_LIMIT, (start["shardcall"] - _START_MORE_S) / start["jax"]
        ),
        Claim("all programs are close to NumPy", ", ".join(sorted(measured.wrong)) or "all", not measured.wrong),
    ]
    print("\n".join([*table(rows), "", *table(programs), "", *claim_table(claims)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

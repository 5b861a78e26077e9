"""First calls of twenty functions of NumPy on a small array, and starts of servers, beside `jax.numpy` in a process.

    python benchmarks/first_calls.py [--rounds N]

Each round starts a server with nothing on disk and a process with JAX, one after the other. The claims at the end are
judged and gate nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from harness.asking import Child, client_environment, server
from harness.report import claim_table, milliseconds, ratio_claim, table
from peers.function_calls import FUNCTIONS

_LATER_ROUNDS = 10
_FIRST_LIMIT, _LATER_LIMIT, _START_LIMIT, _START_MORE_S = 1.5, 3.5, 1.6, 0.5

Times = dict[str, list[float]]
"""The seconds of each function, and of all together."""


def asked(child: Child) -> tuple[Times, Times]:
    """Returns the times of first and of later calls in a process, which then ends."""
    first, later = (child.ask("call", rounds)["seconds"] for rounds in (1, _LATER_ROUNDS))
    child.stop()
    return _named(first), _named(later)


def _named(seconds: Sequence[float]) -> Times:
    return {name: [value] for name, value in zip((*FUNCTIONS, "all"), (*seconds, sum(seconds)), strict=True)}


def main() -> int:
    """Measures, and prints tables and claims."""
    parser = argparse.ArgumentParser(description="Measures first calls and starts beside JAX.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    samples: dict[tuple[str, str], Times] = {}
    starts: Times = {"shardcall": [], "jax": []}
    environment = client_environment(tuned=True)
    for _ in range(rounds):
        began = time.perf_counter()
        child = Child("peers.function_calls", environment=environment)
        child.ask("start", 0)
        starts["jax"].append(time.perf_counter() - began)
        results = {"jax": asked(child)}
        with (
            tempfile.TemporaryDirectory() as folder,
            server(Path(folder), tuned=True, environment={"SHARDCALL_CACHE_DIR": ""}) as ours,
        ):
            starts["shardcall"].append(ours.start_s)
            results["shardcall"] = asked(Child("peers.function_calls", ours.address, environment=environment))
        for who, times in results.items():
            for kind, by_name in zip(("first", "later"), times, strict=True):
                for name, seconds in by_name.items():
                    samples.setdefault((who, kind), {}).setdefault(name, []).extend(seconds)
    rows = [["ms", *(f"{who}, {kind}" for kind in ("first", "later") for who in ("jax", "shardcall")), "÷, first", "÷"]]
    ratios = {}
    for name in (*FUNCTIONS, "all"):
        medians = {key: statistics.median(times[name]) for key, times in samples.items()}
        ratios = {kind: medians["shardcall", kind] / medians["jax", kind] for kind in ("first", "later")}
        shown = [medians[who, kind] for kind in ("first", "later") for who in ("jax", "shardcall")]
        rows.append([name, *map(milliseconds, shown), *(f"{ratio:.2f}" for ratio in ratios.values())])
    start = {who: statistics.median(seconds) for who, seconds in starts.items()}
    rows.append(["start", *map(milliseconds, (start["jax"], start["shardcall"])), "", "", "", ""])
    claims = [
        ratio_claim("first calls / jax", _FIRST_LIMIT, ratios["first"]),
        ratio_claim("later calls / jax", _LATER_LIMIT, ratios["later"]),
        ratio_claim(
            f"(start - {_START_MORE_S} s) / JAX's", _START_LIMIT, (start["shardcall"] - _START_MORE_S) / start["jax"]
        ),
    ]
    print("\n".join([*table(rows), "", *claim_table(claims)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

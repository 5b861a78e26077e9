"""The heat equation on the mesh, beside a jitted `jnp` function for each step and beside NumPy.

    python benchmarks/heat.py [--rounds N] [--sizes 1024,4096]

Every figure of a table comes from one run, in interleaved rounds; first runs are those of a new process and a server
with nothing on disk. The claims at the end are judged and gate nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from harness.asking import Child, client_environment, run_rounds, server
from harness.report import Claim, claim_table, milliseconds, ratio_claim, table

_LIMITS = {1024: (1.5, None), 4096: (1.2, 0.6)}
_FIRST_LIMIT = 1.5


def children(address: str) -> dict[str, Child]:
    """Returns the processes that run the job, by name."""
    environment = client_environment(tuned=True)
    return {
        name: Child(f"peers.{module}", *arguments, environment=environment)
        for name, (module, *arguments) in {
            "shardcall": ("heat_client", address),
            "jit": ("heat_jax",),
            "NumPy": ("heat_steps",),
        }.items()
    }


def steady(sizes: list[int], rounds: int) -> tuple[list[list[str]], list[Claim]]:
    """Returns a row for each size, and the claims."""
    rows, claims = [["size", "shardcall", "jit", "NumPy", "/ jit", "/ NumPy"]], []
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), tuned=True) as ours:
        asked = children(ours.address)
        for size in sizes:
            samples = run_rounds({name: (child, "heat") for name, child in asked.items()}, size, rounds, f"{size}²")
            if errors := [f"{name}: {one.error}" for name, one in samples.items() if one.error]:
                sys.exit("; ".join(errors))
            seconds = {name: statistics.median(one.seconds) for name, one in samples.items()}
            by_jit, by_numpy = (seconds["shardcall"] / seconds[name] for name in ("jit", "NumPy"))
            rows.append([f"{size}²", *map(milliseconds, seconds.values()), f"{by_jit:.2f}", f"{by_numpy:.2f}"])
            of_jit, of_numpy = _LIMITS.get(size, (None, None))
            if of_jit:
                claims.append(ratio_claim(f"a step of {size}² / jit", of_jit, by_jit))
            if of_numpy:
                claims.append(ratio_claim(f"a step of {size}² / NumPy", of_numpy, by_numpy))
        for child in asked.values():
            child.stop()
    return rows, claims


def first_runs(size: int, rounds: int) -> tuple[list[list[str]], list[Claim]]:
    """Returns the seconds of the first steps in new processes, with nothing on disk."""
    seconds: dict[str, list[float]] = {"shardcall": [], "jit": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"SHARDCALL_CACHE_DIR": ""}
            with server(Path(folder), tuned=True, environment=environment) as ours:
                for name, child in children(ours.address).items():
                    if name in seconds:
                        answer = child.ask("heat", size)
                        seconds[name].append(answer["seconds"][0] * max(5, (40 << 20) // size**2))
                    child.stop()
    medians = {name: statistics.median(runs) for name, runs in seconds.items()}
    ratio = medians["shardcall"] / medians["jit"]
    rows = [["first run", *medians, "/ jit"], [f"{size}²", *map(milliseconds, medians.values()), f"{ratio:.2f}"]]
    return rows, [ratio_claim(f"the first steps of {size}² / jit", _FIRST_LIMIT, ratio)]


def main() -> int:
    """Measures, and prints tables and claims."""
    parser = argparse.ArgumentParser(description="Measures the heat equation beside JAX and NumPy.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--first-rounds", type=int, default=3)
    parser.add_argument("--sizes", default="1024,4096")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    rows, claims = steady(sizes, arguments.rounds)
    first, more = first_runs(sizes[0], arguments.first_rounds)
    print("\n".join([*table(rows), "", *table(first), "", *claim_table([*claims, *more])]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

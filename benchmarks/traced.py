"""Traced programs, beside the same functions jitted by JAX in process.

    python benchmarks/traced.py [--rounds N] [--output FILE.md]

Arrays are on the mesh beforehand. Results of one number are read, others are waited for. The floor is JAX with
functions as accurate as the server's; where JAX's own are as accurate, it is JAX again. Every figure of a table comes
from one run, in interleaved rounds. The claims at the end are judged and gate nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from harness.asking import Child, client_environment, run_rounds, server
from harness.report import Claim, claim_table, machine, milliseconds, ratio_claim, table

_ROWS = (  # the title, the job, the size, the limit, and whether JAX has a round trip added
    ("diff · 0.5 → tanh → sum", "chain", 512, 1.2, True),
    ("diff · 0.5 → tanh → sum", "chain", 2048, 1.2, True),
    ("100 heat steps, float64", "heat_float64", 1024, 1.1, False),
    ("100 heat steps, float32", "heat_float32", 1024, 1.1, False),
    ("training step, batch over 8", "data_parallel", 1024, 1.15, False),
    ("training step, 4 × 2", "data_and_tensor_parallel", 1024, 1.15, False),
)
_NODES = 200
_MAX_BYTES = 1024
_LAUNCH_S, _FROM_DISK_S = 0.015, 0.6


def ratios(address: str, rounds: int) -> tuple[list[list[str]], list[Claim]]:
    """Returns a row for each job, and the claims."""
    rows, claims = [["job", "size", "shardcall", "JAX", "floor", "round trip", "÷ JAX", "÷ floor"]], []
    environment = client_environment(tuned=True)
    ours = Child("peers.traced_client", address, environment=environment)
    jax = Child("peers.traced_jax", environment=environment)
    for title, job, size, limit, has_round_trip in _ROWS:
        floor = "chain_floor" if job == "chain" else job
        requests = {
            "ours": (ours, job),
            "JAX": (jax, job),
            "floor": (jax, floor),
            "round trip": (ours, "round_trip"),
        }
        samples = run_rounds(requests, size, rounds, f"{title}, {size}²")
        if errors := [f"{name}: {one.error}" for name, one in samples.items() if one.error]:
            sys.exit("; ".join(errors))
        took, peer, accurate, round_trip = (statistics.median(one.seconds) for one in samples.values())
        ratio, to_floor = (took / (base + round_trip * has_round_trip) for base in (peer, accurate))
        times = map(milliseconds, (took, peer, accurate, round_trip))
        rows.append([title, f"{size}²", *times, f"{ratio:.2f}", f"{to_floor:.2f}"])
        claims.append(ratio_claim(f"{title}, {size}², ÷ JAX{' + a round trip' * has_round_trip}", limit, ratio))
    counted = ours.ask("bytes", 100)
    claims.append(
        Claim(f"a call takes at most {_MAX_BYTES} bytes", f"{counted['bytes']:.0f}", counted["bytes"] <= _MAX_BYTES)
    )
    for child in (ours, jax):
        child.stop()
    return rows, claims


def launches(rounds: int) -> tuple[list[list[str]], list[Claim]]:
    """Returns the times to trace, look up and launch a function of many calls, and the claims."""
    seconds: dict[str, list[float]] = {"new": [], "known to the server": [], "from disk": []}
    environment = client_environment(tuned=True)
    with tempfile.TemporaryDirectory() as folder:
        for count in range(rounds + 1):
            added = {"SHARDCALL_CACHE_DIR": folder, "SHARDCALL_WARM_UP_S": "0"}
            with tempfile.TemporaryDirectory() as sockets, server(Path(sockets), tuned=True, environment=added) as ours:
                child = Child("peers.traced_client", ours.address, environment=environment)
                child.ask("round_trip", 0)
                seconds["from disk" if count else "new"] += child.ask("many", _NODES)["seconds"]
                for _ in range(5):
                    seconds["known to the server"] += child.ask("many", _NODES)["seconds"]
                child.stop()
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    rows = [[f"{_NODES} calls, first run", *medians], ["ms", *map(milliseconds, medians.values())]]
    return rows, [
        Claim(f"{name}: at most {limit * 1e3:.0f} ms", f"{milliseconds(medians[name])} ms", medians[name] <= limit)
        for name, limit in (("known to the server", _LAUNCH_S), ("from disk", _FROM_DISK_S))
    ]


def main() -> int:
    """Measures, prints, and returns 0 whatever the figures are."""
    parser = argparse.ArgumentParser(description="Measures traced programs beside JAX.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--restarts", type=int, default=3, help="of the server, for programs from disk (3)")
    parser.add_argument("--output", type=Path, help="write the report there too")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    # The proxy that counts bytes is at another address than the token is for, and a warm-up would take the processors.
    added = {"SHARDCALL_AUTH": "0", "SHARDCALL_WARM_UP_S": "0"}
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), tuned=True, environment=added) as ours:
        rows, claims = ratios(ours.address, arguments.rounds)
    first, more = launches(arguments.restarts)
    report = [
        "# Traced programs",
        "",
        f"{arguments.rounds} rounds of 5 runs; load {before:.1f} before and {os.getloadavg()[0]:.1f} after.",
        *machine(("jax", "numpy", "grpcio"), {}),
        "",
        *table(rows),
        "",
        *table(first),
        "",
        *claim_table([*claims, *more]),
    ]
    print("\n".join(report))
    if arguments.output:
        arguments.output.write_text("\n".join(report).rstrip() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The first question: a difference along a sharded axis, at the speed of memory.

python examples/demo.py            starts a private server of 8 virtual devices
python examples/demo.py HOST:PORT  asks a server that runs already
"""

from __future__ import annotations

import sys
import time
from typing import NamedTuple

import numpy as np

import shardcall as sc
from shardcall import P

ROWS, COLUMNS = 4096, 4096
ROUNDS = 10


def main() -> int:
    """Asks the first question; returns 0 if the answer is NumPy's, bit for bit."""
    address = sys.argv[1] if len(sys.argv) > 1 else None
    print("Starting a private server of 8 virtual CPU devices …" if address is None else f"Connecting to {address} …")
    with sc.local(devices=8) if address is None else sc.connect(address) as client:
        info = client.server_info()
        print(f"Connected: {len(info.devices)} {info.platform} devices, JAX {info.versions.jax}.\n")
        return ask(client)


def ask(client: sc.Client) -> int:
    """Runs the difference on a mesh of 8 and prints the picture, the check and the times."""
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    print(f"x is {ROWS} × {COLUMNS} float64, {x.nbytes >> 20} MiB. Its rows, sharded over mesh axis x:\n")
    runs = run_rounds(client, x)
    halo, gspmd = (min(of, key=lambda run: run.timing.execute) for of in (runs.halo, runs.gspmd))
    call = min(runs.halo, key=lambda run: run.timing.round_trip)
    print(halo.plan.visualize(), "\n")
    print("result equals np.diff, bit for bit" if runs.equal else "RESULT DIFFERS FROM np.diff", "\n")
    print(f"Where the time of one call went (strategy {call.plan.strategy}):\n")
    print(call.timing, "\n")
    print(f"The best of {ROUNDS} rounds each:")
    print(f"  {'np.diff':18} {min(runs.numpy_s) * 1e3:8.1f} ms   on one core, memory fresh each time")
    for run in (halo, gspmd):
        uses = ", ".join(f"{c.count} {c.opcode}" for c in run.plan.collectives)
        print(f"  {run.plan.strategy + ', the kernel':18} {run.timing.execute * 1e3:8.1f} ms   {uses}")
    print(f"  {call.plan.strategy + ', the call':18} {call.timing.round_trip * 1e3:8.1f} ms   there and back again")
    print(f"  halo is {gspmd.timing.execute / halo.timing.execute:.1f} times as fast as what the compiler makes of it")
    return 0 if runs.equal else 1


class Run(NamedTuple):
    """A call whose result was compared and dropped, so that the next finds the memory free."""

    timing: sc.Timing
    plan: sc.Plan


class Runs(NamedTuple):
    """The runs, and whether all results were NumPy's."""

    numpy_s: list[float]
    halo: list[Run]
    gspmd: list[Run]
    equal: bool


def run_rounds(client: sc.Client, x: np.ndarray) -> Runs:
    """Runs NumPy and both strategies in interleaved rounds; the first, which compiles and allocates, does not count."""
    numpy_s: list[float] = []
    runs: dict[str, list[Run]] = {"halo": [], "gspmd": []}
    equal = True
    for _ in range(1 + ROUNDS):
        began = time.perf_counter()
        expected = np.diff(x, axis=0, prepend=0.0)
        numpy_s.append(time.perf_counter() - began)
        for strategy, done in runs.items():
            result = client.diff(x, axis=0, prepend=0.0, mesh=sc.Mesh(x=8), spec=P("x", None), strategy=strategy)
            equal = equal and np.array_equal(result.array, expected)
            done.append(Run(result.timing, result.plan))
    return Runs(numpy_s[1:], runs["halo"][1:], runs["gspmd"][1:], equal)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

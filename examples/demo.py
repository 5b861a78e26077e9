"""The first question: a difference along a sharded axis, at the speed of memory.

python examples/demo.py            starts a private server of 8 virtual devices
python examples/demo.py HOST:PORT  asks a server that runs already
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np

import shardcall as sc
from shardcall import P

ROWS, COLUMNS = 4096, 4096
REPEATS = 10  # a new worker's first few results of a size fall into memory never touched before


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
    mesh, spec = sc.Mesh(x=8), P("x", None)
    print(f"x is {ROWS} × {COLUMNS} float64, {x.nbytes >> 20} MiB. Its rows, split over mesh axis x:\n")

    results: dict[str, sc.Result] = {}
    for strategy in ("auto", "gspmd"):
        for _ in range(REPEATS):  # the first compiles, the others find the program
            result = client.diff(x, axis=0, prepend=0.0, mesh=mesh, spec=spec, strategy=strategy)
            best = results.setdefault(strategy, result)
            if result.timing.execute < best.timing.execute or best.timing.compile:
                results[strategy] = result
    halo, gspmd = results["auto"], results["gspmd"]
    print(halo.plan.visualize(), "\n")

    numpy_s = math.inf
    for _ in range(REPEATS):
        began = time.perf_counter()
        expected = np.diff(x, axis=0, prepend=0.0)
        numpy_s = min(numpy_s, time.perf_counter() - began)
    equal = bool(np.array_equal(halo.array, expected) and np.array_equal(gspmd.array, expected))
    print("result equals np.diff, bit for bit" if equal else "RESULT DIFFERS FROM np.diff", "\n")

    print(f"Where the time of one call went (strategy {halo.plan.strategy}: {halo.plan.strategy_reason}):\n")
    print(halo.timing, "\n")
    print("The kernel alone, the best of", REPEATS)
    for result in results.values():
        name = result.plan.strategy
        uses = ", ".join(f"{c.count} {c.kind}" for c in result.plan.collectives)
        print(f"  {name:6} {result.timing.execute * 1e3:8.1f} ms   {uses}")
    print(f"  NumPy  {numpy_s * 1e3:8.1f} ms   on one core, memory fresh each time")
    print(f"  halo is {gspmd.timing.execute / halo.timing.execute:.1f} times as fast as what the compiler makes of it")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())

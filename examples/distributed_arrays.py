"""Distributed arrays: one array placed in several layouts, each drawn, and the time of sin on each.

    python examples/distributed_arrays.py            starts a private server of 8 virtual devices
    python examples/distributed_arrays.py HOST:PORT  asks a server that runs already

The cases are those of JAX's notebook on distributed arrays: blocks of 4 × 2, 8 × 1 and 1 × 8, and blocks that several
devices hold. The array is put on the mesh once; it stays there, and so does what is computed from it. With
``--size 8192`` it is as large as the notebook's.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

import shardcall as sc
from shardcall import P

GRID = sc.Mesh(rows=4, columns=2)
PLACEMENTS = {
    "4 × 2 blocks": (GRID, P("rows", "columns")),
    "8 × 1 blocks": (GRID, P(("rows", "columns"), None)),
    "1 × 8 blocks": (GRID, P(None, ("rows", "columns"))),
    "4 × 1 blocks, each on 2 devices": (GRID, P("rows", None)),
    "1 × 2 blocks, each on 4 devices": (GRID, P(None, "columns")),
}
TIMED = {
    "one device": (sc.Mesh(x=1), P()),
    "sharded, 4 × 2": (GRID, P("rows", "columns")),
    "replicated, 2-way × 4": (GRID, P(None, "columns")),
}
NAMED = sc.Mesh(a=4, b=2)
NAMED_TIMED = {str(spec): (NAMED, spec) for spec in (P("a", "b"), P("a", None))}
ROUNDS = 5
# Of NumPy's sine and the compiler's each is within a few units in the last place of the true one, at most 1.
TOLERANCE = 4 * np.finfo(np.float32).eps


def placements(client: sc.Client, size: int) -> dict[str, bool]:
    """Puts an array on the mesh in every layout and draws its placement; returns what was checked."""
    x = normal(size)
    checks = {}
    for name, (mesh, spec) in PLACEMENTS.items():
        with client.put(x, mesh=mesh, spec=spec) as array:
            print(f"{name}\n{array.visualize()}\n")
            blocks = array.blocks()
            copies = mesh.size // math.prod(blocks.counts)
            checks[f"{name}: every block is on {copies} of the devices"] = {
                len(devices) for devices in blocks.holders.values()
            } == {copies}
            checks[f"{name}: the devices hold {copies} × the array"] = (
                array.device_bytes == copies * math.prod(array.padded_shape) * x.itemsize
            )
            checks[f"{name}: it comes back bit for bit"] = np.array_equal(array.get(), x)
    return checks


def sines(client: sc.Client, size: int, cases: dict[str, tuple[sc.Mesh, sc.PartitionSpec]]) -> dict[str, bool]:
    """Takes the sine on the array's devices, and times the kernel alone; returns what was checked."""
    x = normal(size)
    expected = np.sin(x)
    checks = {}
    rows = []
    for name, (mesh, spec) in cases.items():
        with client.put(x, mesh=mesh, spec=spec) as array:
            result = quickest(client, array)
            with result.array as sine:
                if name not in TIMED:
                    print(f"{name}\n{sine.visualize()}\n")
                rows.append((name, result.timing.execute, sine.device_bytes))
                checks[f"{name}: sin is placed as the array"] = sine.blocks() == array.blocks()
                checks[f"{name}: sin moves nothing between devices"] = not result.plan.collectives
                checks[f"{name}: sin is NumPy's, within 4 ε"] = bool(np.all(abs(sine.get() - expected) <= TOLERANCE))
    print(f"sin of {size} × {size} float32 on the mesh, the best of {ROUNDS}")
    for name, seconds, nbytes in rows:
        print(f"  {name:<24}{seconds * 1e3:>9.2f} ms{nbytes >> 10:>12,} KiB written")
    print("Each device that holds a copy computes it anew: n copies are n times the work.\n")
    return checks


def quickest(client: sc.Client, array: sc.RemoteArray) -> sc.Result:
    """Takes the sine a few times; returns the call whose kernel was the quickest, its result on the mesh."""
    best = client.sin(array, keep=True)
    for _ in range(ROUNDS):
        result = client.sin(array, keep=True)
        if result.timing.execute < best.timing.execute:
            best, result = result, best
        client.delete(result.array)
    return best


def normal(size: int) -> np.ndarray:
    """Normal numbers in float32, as JAX makes them by default."""
    return np.random.default_rng(0).standard_normal((size, size), np.float32)


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Takes the sine of an array in several placements.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--size", type=int, default=2048, help="rows and columns of the array (2048)")
    arguments = parser.parse_args()
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=8) as client:
        checks = {
            **placements(client, arguments.size),
            **sines(client, arguments.size, TIMED),
            **sines(client, arguments.size, NAMED_TIMED),
        }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""The first question as it was asked: a factory that compiles a difference ahead of time, over three layouts.

    python examples/ahead_of_time_factory.py            starts a private server of 8 virtual devices
    python examples/ahead_of_time_factory.py HOST:PORT  asks a server that runs already

The array is placed on one device, on eight along the axis of the difference, and on eight across it. Left to the
compiler, the second costs many times the others; as shardcall does it, all three run at the speed of memory.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import numpy.typing as npt

import shardcall as sc
from shardcall import P

SPEC = P("x", "y")
LAYOUTS = {
    "one device": sc.Mesh(x=1, y=1),
    "along the axis": sc.Mesh(x=8, y=1),
    "across the axis": sc.Mesh(x=1, y=8),
}
ROUNDS = 5


def make_diff(
    client: sc.Client,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    mesh: sc.Mesh,
    spec: sc.PartitionSpec,
    strategy: str = "auto",
) -> sc.CompiledKernel:
    """Compiles the difference along axis 0, a row of zeros put before it, for one shape and layout.

    Returns:
        A callable that takes arrays of exactly this shape and type. The zero is bound, in the array's own
        type: a plain 0.0 is a float64, and would widen the difference of a float32, as in NumPy.
    """
    zero = np.zeros((), dtype)
    return client.compile("diff", sc.Array(shape, dtype), axis=0, prepend=zero, mesh=mesh, spec=spec, strategy=strategy)


def compare_layouts(client: sc.Client, size: int) -> dict[str, bool]:
    """Takes the difference in every layout; returns what was checked."""
    x = np.random.default_rng(0).standard_normal((size, size))
    expected = np.diff(x, axis=0, prepend=0.0)
    checks = {}
    rows = []
    for name, mesh in LAYOUTS.items():
        diff = make_diff(client, x.shape, x.dtype, mesh, SPEC)
        print(f"{diff.plan.visualize()}\n")
        result = quickest(diff, x)
        rows.append((name, result))
        checks[f"{name}: the result is np.diff's, bit for bit"] = np.array_equal(result.array, expected)
        checks[f"{name}: it is sharded as the array"] = result.plan.results[0].spec == SPEC
    along = rows[1][1].plan
    checks["along the axis, one collective moves one row a device"] = [
        (c.opcode, c.count, c.bytes_per_device) for c in along.collectives
    ] == [("collective-permute", 1, x.itemsize * size)]
    checks["across the axis, nothing moves"] = not rows[2][1].plan.collectives

    by_compiler = make_diff(client, x.shape, x.dtype, LAYOUTS["along the axis"], SPEC, strategy="gspmd")
    rows.append(("  left to the compiler", quickest(by_compiler, x)))
    report(rows)
    return checks


def quickest(diff: sc.CompiledKernel, x: np.ndarray) -> sc.Result:
    """Calls a few times; returns the call whose kernel was the quickest."""
    return min((diff(x) for _ in range(ROUNDS)), key=lambda result: result.timing.execute)


def report(rows: list[tuple[str, sc.Result]]) -> None:
    """Prints a line for each layout, and why they differ."""
    print(f"{'layout':<23}{'kernel':>10}   {'strategy':<9} collectives")
    for name, result in rows:
        moved = ", ".join(f"{c.count} {c.opcode} ({c.bytes_per_device:,} bytes)" for c in result.plan.collectives)
        print(f"{name:<23}{result.timing.execute * 1e3:>7.2f} ms   {result.plan.strategy:<9} {moved or 'none'}")
    print(
        "\nA row of a difference needs the row above it. Sharded across the axis, every device has both. Sharded\n"
        "along it, a device lacks one row, the last of the device before it; halo sends that and nothing else."
    )
    _, by_compiler = rows[-1]
    if any(collective.opcode == "all-to-all" for collective in by_compiler.plan.collectives):
        print(
            "The compiler puts the zeros in front first; that makes one row more than 8 devices divide, so it\n"
            "reshards the complete array from rows to columns, takes the difference, and reshards it back."
        )
    print()


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Compiles a difference ahead of time for three layouts.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the array (4096)")
    arguments = parser.parse_args()
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=8) as client:
        checks = compare_layouts(client, arguments.size)
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

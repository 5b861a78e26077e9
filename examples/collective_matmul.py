"""Collective matmul: products whose blocks or sums must travel, and the strategies that move them.

    python examples/collective_matmul.py            starts a private server of 4 virtual devices
    python examples/collective_matmul.py HOST:PORT  asks a server that runs already

The cases are those of JAX's notebook on shard_map: partial sums completed by three strategies, then products whose lhs
must be gathered or whose sums must be scattered, by one collective or by rings that multiply while blocks travel.
On CPU rings gain no time, since devices wait for each other in every collective; elsewhere they hide the travel.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

import shardcall as sc
from shardcall import P

SQUARE = sc.Mesh(x=2, y=2)
LINE = sc.Mesh(x=4)
ROUNDS = 3


def partial_sums(client: sc.Client) -> dict[str, bool]:
    """Completes the sums of an 8 × 16 by 16 × 4 product on 2 × 2 devices; returns what was checked."""
    lhs, rhs = normal((8, 16), 0), normal((16, 4), 1)
    product = partial(client.matmul, lhs, rhs, mesh=SQUARE, lhs_spec=P("x", "y"), rhs_spec=P("y", None))
    plan = product().plan
    print(
        "The contracting axis of P('x', 'y') by P('y', None) is sharded over y, so the product of two blocks is only\n"
        "a part of a sum. The sharding of the result determines how the sums are completed.\n\n"
        f"{plan.visualize('operand 0')}\n\n{plan.visualize('operand 1')}\n"
    )
    # With the halves of the contracting axis on an axis of their own, what each device has before any sum is a result.
    halves = lhs.reshape(8, 2, 8), rhs.reshape(2, 8, 4)
    parts = client.einsum(
        "iyk,ykj->yij", *halves, mesh=SQUARE, lhs_spec=P("x", "y"), rhs_spec=P("y"), out_spec=P("y", "x")
    )
    print(f"the uncompleted blocks: every device has its rows of one of two terms\n{parts.plan.visualize('result')}\n")
    asked = {
        "summed over y, the columns of the sum scattered along y": (P("x", "y"), "psum_scatter"),
        "summed over y, the complete sum on both": (P("x", None), "psum"),
        "summed over y, gathered along x, sharded along y": (P(None, "y"), "gspmd"),
        "left to the server: summed over y, the rows of the sum scattered": (None, "auto"),
    }
    results: dict[str, sc.Result] = {}
    off = float(np.max(abs(parts.array.sum(0) - lhs @ rhs)))
    checks = {
        "2 × 2: the blocks alone are no product, and move nothing": not parts.plan.collectives
        and not np.allclose(parts.array[0], lhs @ rhs),
        "2 × 2: their sum over y is the product": off < 1e-5,
    }
    for what, (spec, strategy) in asked.items():
        result = product(out_spec=spec, strategy=strategy)
        result_spec = result.plan.results[0].spec
        print(f"{what}\n{result.plan.visualize('result')}\n")
        results[f"{result_spec} by {result.plan.strategy}"] = result
        checks[f"2 × 2: the result is sharded as requested, {result_spec}"] = result_spec == (
            spec or P(("x", "y"), None)
        )
    return checks | compare("2 × 2", results, lhs, rhs)


def gathered_lhs(client: sc.Client, rows: int, contracting: int, columns: int) -> dict[str, bool]:
    """Multiplies with lhs sharded by rows, and leaves every device the complete product; returns what was checked."""
    lhs, rhs = normal((rows, contracting), 2), normal((contracting, columns), 3)
    specs: dict[str, Any] = {"lhs_spec": P("x", None), "rhs_spec": P(), "out_spec": P()}
    results = run(client, lhs, rhs, specs, ["all_gather", "ring", "bidirectional_ring"])
    title = f"{rows} × {contracting} P('x', None) by {contracting} × {columns} P() → P()"
    print(f"{title}, on 4 devices, blocks of {rows // 4} rows\n")
    return compare(title, results, lhs, rhs) | {
        f"{title}: rings pass blocks on and gather nothing": all(
            kinds(results[name]) == {"collective-permute"} for name in ("ring", "bidirectional_ring")
        )
    }


def scattered_sums(client: sc.Client, rows: int, contracting: int, columns: int) -> dict[str, bool]:
    """Multiplies with the contracting axis sharded, and leaves each device its rows; returns what was checked."""
    lhs, rhs = normal((rows, contracting), 4), normal((contracting, columns), 5)
    specs: dict[str, Any] = {"lhs_spec": P(None, "x"), "rhs_spec": P("x", None), "out_spec": P("x", None)}
    results = run(client, lhs, rhs, specs, ["psum_scatter", "psum_scatter_ring"])
    title = f"{rows} × {contracting} P(None, 'x') by {contracting} × {columns} P('x', None) → P('x', None)"
    print(f"{title}, on 4 devices\n")
    return compare(title, results, lhs, rhs) | {
        f"{title}: one collective scatters the sums": kinds(results["psum_scatter"]) == {"reduce-scatter"},
        f"{title}: or they travel round a ring": kinds(results["psum_scatter_ring"]) == {"collective-permute"},
    }


def normal(shape: tuple[int, int], seed: int) -> np.ndarray:
    """Normal numbers in float32, as JAX makes them by default."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def run(
    client: sc.Client, lhs: np.ndarray, rhs: np.ndarray, specs: dict[str, Any], strategies: Sequence[str]
) -> dict[str, sc.Result]:
    """Multiplies as the compiler does it and by each strategy; returns of each the call with the quickest kernel."""
    calls = {"the compiler": partial(client.matmul, lhs, rhs, mesh=LINE, strategy="gspmd", **specs)}
    for name in strategies:
        calls[name] = partial(client.collective_matmul, lhs, rhs, mesh=LINE, axis_name="x", strategy=name, **specs)
    return {
        name: min((call() for _ in range(ROUNDS)), key=lambda result: result.timing.execute)
        for name, call in calls.items()
    }


def kinds(result: sc.Result) -> set[str]:
    """The kinds of collectives that a call ran."""
    return {collective.opcode for collective in result.plan.collectives}


def compare(title: str, results: Mapping[str, sc.Result], lhs: np.ndarray, rhs: np.ndarray) -> dict[str, bool]:
    """Prints what each product needed, and how far it is from NumPy's; returns what was checked.

    The sum of K products, taken in any order, is off by at most K ε Σ |lhs| |rhs|; two of them differ by at most
    twice that, which is the tolerance.
    """
    tolerance = 2 * lhs.shape[1] * np.finfo(lhs.dtype).eps * (abs(lhs).astype(float) @ abs(rhs))
    expected = lhs @ rhs
    off = {name: float(np.max(abs(result.array - expected) / tolerance)) for name, result in results.items()}
    width = max(map(len, results)) + 2
    print(f"{'':<{width}}{'kernel':>9}   {'temporary':>12}   off, of tolerance   collectives, bytes a device")
    for name, result in results.items():
        plan = result.plan
        moved = ", ".join(f"{c.count} {c.opcode} ({c.bytes_per_device:,})" for c in plan.collectives)
        print(
            f"{name:<{width}}{result.timing.execute * 1e3:>6.2f} ms   {plan.memory.temp_bytes:>12,}   "
            f"{off[name]:>17.4f}   {moved or 'none'}"
        )
    print()
    return {f"{title}: every product is NumPy's, within 2 K ε Σ |lhs| |rhs|": max(off.values()) <= 1}


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Multiplies matrices whose blocks or sums must travel.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--scale", type=int, default=4, help="divides 16384 × 1024 by 1024 × 2048 in every axis (4)")
    parser.add_argument("--profile", metavar="DIR", help="record what the devices do, and put the traces below DIR")
    arguments = parser.parse_args()
    rows, contracting, columns = (size // arguments.scale for size in (16384, 1024, 2048))
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=4) as client:
        runs: list[Callable[[], dict[str, bool]]] = [
            lambda: partial_sums(client),
            lambda: gathered_lhs(client, rows, contracting, columns),
            lambda: gathered_lhs(client, 4 * 7, contracting, columns),  # a block of 7 rows has no equal halves
            lambda: scattered_sums(client, rows, contracting, columns),
        ]
        checks: dict[str, bool] = {}
        for run_all in runs:  # each under a trace of its own
            with client.profile(arguments.profile) if arguments.profile else nullcontext() as profile:
                checks |= run_all()
            if profile is not None:
                print(f"trace: {profile.path}\n")
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Computation follows sharding: kernels run on the devices of their operands, and results get their layout by default.

    python examples/computation_follows_sharding.py            starts a private server of 8 virtual devices
    python examples/computation_follows_sharding.py HOST:PORT  asks a server that runs already

The cases are those of JAX's tutorial on distributed arrays and automatic parallelization, on its mesh of 4 × 2
devices: sin and copy keep the layout, a product of rows by columns needs no communication, arrays placed on different
devices are not combined, and a result has another layout on request. examples/layouts.py draws the layouts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)
ONE = sc.Mesh(a=1)
LAYOUTS = {
    "P('a', 'b')": (MESH, P("a", "b")),
    "P('b', 'a')": (MESH, P("b", "a")),
    "P('a', None)": (MESH, P("a", None)),
    "P(None, 'b')": (MESH, P(None, "b")),
    "P(None, 'a')": (MESH, P(None, "a")),
    "P(('a', 'b'), None)": (MESH, P(("a", "b"), None)),
    "a single device": (ONE, P()),
}
ROUNDS = 5
# Of NumPy's sine and the compiler's each is within a few units in the last place of the true one, at most 1.
TOLERANCE = 4 * np.finfo(np.float32).eps


def layouts_are_kept(client: sc.Client, size: int) -> dict[str, bool]:
    """Takes sine and copy of an array in each layout; returns what was checked."""
    x = normal((size, size), 0)
    expected = {"sin": np.sin(x), "copy": x}
    checks = {}
    rows = []
    for name, (mesh, spec) in LAYOUTS.items():
        with client.put(x, mesh=mesh, spec=spec) as array:
            print(f"{array.visualize()}\n")
            for kernel, method in {"sin": client.sin, "copy": client.copy}.items():
                result = quickest(client, method, array)
                with result.array as computed:
                    rows.append((name, kernel, result))
                    off = abs(computed.get() - expected[kernel])
                    checks[f"{name}: {kernel} is placed as its operand"] = computed.blocks() == array.blocks()
                    checks[f"{name}: {kernel} moves nothing between devices"] = not result.plan.collectives
                    checks[f"{name}: {kernel} is NumPy's"] = bool(off.max() <= (TOLERANCE if kernel == "sin" else 0))
    report(f"{size} × {size} float32 on the mesh", rows)
    return checks


def product_without_communication(client: sc.Client, size: int) -> dict[str, bool]:
    """Multiplies rows by columns on eight devices and on one; returns what was checked."""
    lhs, rhs = normal((size, size), 1), normal((size, size), 2)
    cases = {
        "one device": ((ONE, P()), (ONE, P())),
        "P('a', None) by P(None, 'b')": ((MESH, P("a", None)), (MESH, P(None, "b"))),
    }
    # Two sums of the same K products, in whatever order, differ by at most 2 K ε Σ |lhs| |rhs|.
    tolerance = 2 * size * np.finfo(np.float32).eps * (abs(lhs).astype(float) @ abs(rhs))
    checks = {}
    rows = []
    for name, (left, right) in cases.items():
        with (
            client.put(lhs, mesh=left[0], spec=left[1]) as here,
            client.put(rhs, mesh=right[0], spec=right[1]) as there,
        ):
            result = quickest(client, client.matmul, here, there)
            with result.array as product:
                rows.append((name, "matmul", result))
                print(f"{name}\n{here.visualize()}\n{there.visualize()}\nthe product: {product.visualize()}\n")
                checks[f"{name}: no communication"] = not result.plan.collectives
                checks[f"{name}: NumPy's product, but for the order of its sums"] = bool(
                    np.all(abs(product.get() - lhs @ rhs) <= tolerance)
                )
                if left[0] is MESH:
                    checks[f"{name}: gives P('a', 'b')"] = product.spec == P("a", "b")
    report(f"{size} × {size} by {size} × {size} float32 on the mesh", rows)
    return checks


def relaid(client: sc.Client, size: int) -> dict[str, bool]:
    """Adds 1 to an array, the sum sharded as the array, transposed, and replicated; returns what was checked."""
    x = normal((size, size), 3)
    checks = {}
    rows = []
    with client.put(x, mesh=MESH, spec=P("a", "b")) as array:
        for name, spec in {"as it is": None, "transposed": P("b", "a"), "replicated": P(None, None)}.items():
            result = quickest(client, client.add, array, np.float32(1), out_spec=spec)
            with result.array as total:
                rows.append((name, "add", result))
                print(f"x + 1, {name}\n{total.visualize()}\n")
                checks[f"x + 1, {name}: the sum is sharded so"] = total.spec == (array.spec if spec is None else spec)
                checks[f"x + 1, {name}: NumPy's, bit for bit"] = np.array_equal(total.get(), x + np.float32(1))
                checks[f"x + 1, {name}: moves {'nothing' if spec is None else 'blocks'} between devices"] = bool(
                    result.plan.collectives
                ) is (spec is not None)
    report(f"x + 1 of {size} × {size} float32 sharded as P('a', 'b')", rows)
    return checks


def different_devices(client: sc.Client, size: int) -> dict[str, bool]:
    """Combines arrays that are placed on different devices; returns the checks."""
    x = normal((size, size), 4)
    expected = x + x
    elsewhere = {
        "other devices": sc.Mesh(a=2, b=2, device_ids=[4, 5, 6, 7]),
        "the same devices in another order": sc.Mesh(a=2, b=2, device_ids=[3, 2, 1, 0]),
    }
    here = sc.Mesh(a=2, b=2)
    checks = {}
    with client.put(x, mesh=here, spec=P("a", "b")) as first:
        for name, mesh in elsewhere.items():
            with client.put(x, mesh=mesh, spec=P("a", "b")) as second:
                print(f"{first.visualize()}\n{second.visualize()}")
                refusal = refused(partial(client.add, first, second))
                print(f"refused: {refusal}\n")
                checks[f"{name}: refused, naming both"] = all(
                    f"devices {','.join(map(str, ids))}" in refusal for ids in (range(4), mesh.device_ids or ())
                )
                total = client.add(first, second, mesh=here)
                checks[f"{name}: they are added where the call says"] = np.array_equal(total.array, expected)
            moved = client.add(first, x)
            checks["an array of the host is placed where the other operand is"] = moved.plan.mesh.device_ids == (
                0,
                1,
                2,
                3,
            ) and np.array_equal(moved.array, expected)
    return checks


def refused(call: Callable[[], object]) -> str:
    """Returns what a call is refused with; nothing if it is served."""
    try:
        call()
    except sc.ShardingError as error:
        return str(error)
    return ""


def quickest(client: sc.Client, method: Callable[..., sc.Result], *operands: object, **options: Any) -> sc.Result:
    """Calls a few times; returns the call whose kernel was the quickest, its result on the mesh."""
    best = method(*operands, keep=True, **options)
    for _ in range(ROUNDS):
        result = method(*operands, keep=True, **options)
        if result.timing.execute < best.timing.execute:
            best, result = result, best
        client.delete(result.array)
    return best


def report(title: str, rows: list[tuple[str, str, sc.Result]]) -> None:
    """Prints a line for each kernel and layout."""
    print(f"{title}, the best of {ROUNDS}")
    for name, kernel, result in rows:
        moved = ", ".join(
            f"{c.count} {c.opcode} ({c.bytes_per_device:,} bytes a device)" for c in result.plan.collectives
        )
        print(f"  {name:<30}{kernel:<8}{result.timing.execute * 1e3:>9.2f} ms   {moved or 'nothing moves'}")
    print()


def normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Normal numbers in float32, as JAX makes them by default."""
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Runs kernels where their operands are placed.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--size", type=int, default=1024, help="rows and columns of the arrays (1024)")
    arguments = parser.parse_args()
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=8) as client:
        checks = {
            **layouts_are_kept(client, arguments.size),
            **product_without_communication(client, arguments.size),
            **relaid(client, arguments.size),
            **different_devices(client, arguments.size),
        }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

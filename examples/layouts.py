"""Layouts: how a PartitionSpec splits an array over a mesh, drawn, and what each costs.

    python examples/layouts.py            starts a private server of 8 virtual devices
    python examples/layouts.py HOST:PORT  asks a server that runs already

The layouts are those of JAX's tutorial on distributed arrays: a mesh of 4 × 2 devices, its axes named a and b.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)
LAYOUTS = {
    "rows over a, columns over b": (MESH, P("a", "b")),
    "rows over b, columns over a": (MESH, P("b", "a")),
    "rows over a, replicated over b": (MESH, P("a", None)),
    "columns over b, replicated over a": (MESH, P(None, "b")),
    "columns over a, replicated over b": (MESH, P(None, "a")),
    "rows over both": (MESH, P(("a", "b"), None)),
    "a single device": (sc.Mesh(a=1), P()),
}


def differences(client: sc.Client, size: int) -> dict[str, bool]:
    """Draws every layout and takes a difference in it; returns what was checked."""
    x = np.random.default_rng(0).standard_normal((size, size))
    expected = np.diff(x, axis=0)  # one row less: no longer divided by 4, which is the server's business
    checks = {}
    for name, (mesh, spec) in LAYOUTS.items():
        result = client.diff(x, axis=0, mesh=mesh, spec=spec)
        moved = ", ".join(f"{c.kind}, {c.bytes_per_device:,} bytes a device" for c in result.plan.collectives)
        print(f"{name}\n{result.plan.visualize()}\ndiff along axis 0 moves: {moved or 'nothing'}\n")
        checks[f"{spec} on {mesh}: diff is np.diff's, bit for bit"] = np.array_equal(result.array, expected)
    return checks


def product_without_communication(client: sc.Client, size: int) -> dict[str, bool]:
    """Multiplies rows by columns, each device its own block of the result; returns what was checked."""
    lhs, rhs = np.random.default_rng(1).standard_normal((2, size, size))
    result = client.matmul(lhs, rhs, mesh=MESH, lhs_spec=P("a", None), rhs_spec=P(None, "b"), out_spec=P("a", "b"))
    print("P('a', None) by P(None, 'b'): every device has the rows and columns that its block of the product needs\n")
    for which in ("operand 0", "operand 1", "result"):
        print(f"{result.plan.visualize(which)}\n")
    # Two sums of the same K products, in whatever order, differ by at most 2 K ε Σ |lhs| |rhs|.
    tolerance = 2 * size * np.finfo(float).eps * (abs(lhs) @ abs(rhs))
    return {
        "P('a', None) by P(None, 'b'): no communication": not result.plan.collectives,
        "P('a', None) by P(None, 'b'): NumPy's product, but for the order of its sums": bool(
            np.all(abs(result.array - lhs @ rhs) <= tolerance)
        ),
    }


def device_order(client: sc.Client, size: int) -> dict[str, bool]:
    """Lays an array on the same devices in another order; returns what was checked."""
    x = np.random.default_rng(2).standard_normal((size, size))
    backwards = sc.Mesh(MESH.shape, device_ids=range(MESH.size - 1, -1, -1))
    some = sc.Mesh(a=3, device_ids=[6, 1, 4])
    plain, turned, three = (client.diff(x, axis=1, mesh=mesh, spec=P("a")) for mesh in (MESH, backwards, some))
    for result in (turned, three):
        print(f"{result.plan.visualize()}\n")
    expected = np.diff(x, axis=1)
    return {
        "device_ids: the plan names the devices in the order asked for": (
            turned.plan.mesh == backwards and three.plan.mesh == some
        ),
        "device_ids: another order is another program": turned.plan.key_digest != plain.plan.key_digest,
        "device_ids: the result does not depend on it": all(
            np.array_equal(result.array, expected) for result in (plain, turned, three)
        ),
    }


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Draws the layouts of an array over 4 × 2 devices.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--size", type=int, default=512, help="rows and columns of the arrays (512)")
    arguments = parser.parse_args()
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=8) as client:
        checks = {
            **differences(client, arguments.size),
            **product_without_communication(client, arguments.size),
            **device_order(client, arguments.size),
        }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

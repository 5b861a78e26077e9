"""Layouts: drawings of how a PartitionSpec shards an array over a mesh, and the cost of each.

    python examples/layouts.py            starts a private server of 8 virtual devices
    python examples/layouts.py HOST:PORT  asks a server that runs already

The layouts are those of JAX's tutorial on distributed arrays: a mesh of 4 × 2 devices, its axes named a and b.
examples/computation_follows_sharding.py continues with computations on such arrays.
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
ROUNDS = 3


def differences(client: sc.Client, size: int) -> dict[str, bool]:
    """Draws every layout and takes a difference in it; returns what was checked."""
    x = np.random.default_rng(0).standard_normal((size, size))
    expected = np.diff(x, axis=0)  # one row less: no longer divided by 4, which is the server's business
    checks = {}
    for name, (mesh, spec) in LAYOUTS.items():
        calls = [client.diff(x, axis=0, mesh=mesh, spec=spec) for _ in range(ROUNDS)]
        result = min(calls, key=lambda call: call.timing.execute)
        moved = ", ".join(f"{c.opcode}, {c.bytes_per_device:,} bytes a device" for c in result.plan.collectives)
        print(f"{name}\n{result.plan.visualize()}")
        print(f"diff along axis 0 takes {result.timing.execute * 1e3:.2f} ms and moves {moved or 'nothing'}\n")
        checks[f"{spec} on {mesh}: diff is np.diff's, bit for bit"] = np.array_equal(result.array, expected)
    return checks


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
            **device_order(client, arguments.size),
        }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Random numbers: made on the mesh, already sharded, the same whatever the mesh.

    python examples/random_numbers.py            starts a private server of 8 virtual devices
    python examples/random_numbers.py HOST:PORT  asks a server that runs already

JAX's tutorial on distributed arrays adds uniform values of key 42 to an array of 24 that 8 devices hold.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import shardcall as sc
from shardcall import P

KEY = 42
LAYOUTS = {
    "one device": (sc.Mesh(x=1), P()),
    "rows over 8": (sc.Mesh(x=8), P("x")),
    "rows over 3, which do not divide them": (sc.Mesh(x=3), P("x")),
    "columns over 8": (sc.Mesh(x=8), P(None, "x")),
    "rows and columns": (sc.Mesh(a=4, b=2), P("a", "b")),
    "replicated": (sc.Mesh(a=4, b=2), P()),
}


def added_to_an_array(client: sc.Client) -> dict[str, bool]:
    """Adds uniform values to a sharded array on the mesh; returns what was checked."""
    mesh, spec = sc.Mesh(x=8), P("x")
    x = np.arange(24.0)
    computed = client.uniform(KEY, x.shape, mesh=mesh, out_spec=spec, keep=True)
    with client.put(x, mesh=mesh, spec=spec) as here, computed.array as noise:
        total = client.add(here, noise, keep=True)
        with total.array as kept:
            values = kept.get()
        print(f"x + uniform(key {KEY}), sharded as x is\n{total.plan.visualize('result')}\n{values[:6]} …\n")
        noisy = noise.get()
    return {
        "uniform: nothing moves": not computed.plan.collectives,
        "x + uniform: nothing moves": not total.plan.collectives,
        "x + uniform: the result is sharded as x": total.plan.results[0].spec == spec,
        "x + uniform: NumPy's sum of the two": np.array_equal(values, x + noisy),
        "uniform: in [0, 1)": bool(np.all((noisy >= 0) & (noisy < 1))),
    }


def same_on_every_mesh(client: sc.Client, size: int) -> dict[str, bool]:
    """Makes the same values in every layout; returns what was checked."""
    checks = {}
    expected = client.normal(KEY, (size, 8), dtype="float32", mesh=sc.Mesh(x=1)).array
    for name, (mesh, spec) in LAYOUTS.items():
        result = client.normal(KEY, (size, 8), dtype="float32", mesh=mesh, out_spec=spec)
        print(f"normal, {name}: {result.timing.execute * 1e3:.2f} ms")
        checks[f"normal, {name}: the same values"] = np.array_equal(result.array, expected)
    other = client.normal(KEY + 1, (size, 8), dtype="float32", mesh=sc.Mesh(x=8)).array
    return {**checks, "normal, another key: other values": not np.any(other == expected)}


def drawn_integers_and_orders(client: sc.Client, size: int) -> dict[str, bool]:
    """Throws dice and shuffles rows on the mesh; returns what was checked."""
    mesh = sc.Mesh(x=8)
    dice = client.randint(KEY, size * 8, 1, 7, mesh=mesh).array
    x = np.arange(size)
    shuffled, on_one = (client.permutation(KEY, x, mesh=target_mesh).array for target_mesh in (mesh, sc.Mesh(x=1)))
    print(f"dice: {dice[:12]} …; shuffled rows: {shuffled[:8]} …\n")
    return {
        "randint: 1 to 6, and all of them": set(dice.tolist()) == set(range(1, 7)),
        "permutation: every row once, in another order": np.array_equal(np.sort(shuffled), x)
        and not np.array_equal(shuffled, x),
        "permutation: the same on every mesh": np.array_equal(shuffled, on_one),
    }


def main() -> int:
    """Runs the example; returns 0 if every check holds."""
    parser = argparse.ArgumentParser(description="Makes random arrays on a mesh.")
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--size", type=int, default=4096, help="rows of the arrays (4096)")
    arguments = parser.parse_args()
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=8) as client:
        checks = {
            **added_to_an_array(client),
            **same_on_every_mesh(client, arguments.size),
            **drawn_integers_and_orders(client, arguments.size),
        }
    for what, holds in checks.items():
        print(f"{'yes' if holds else 'NO ':<4}{what}")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Runs a program of the gallery on the mesh and in NumPy, compares results and times, and draws the result.

    python examples/gallery/show.py heat                  starts a private server of 8 virtual devices
    python examples/gallery/show.py heat HOST:PORT        asks a server that runs already
    python examples/gallery/show.py heat --picture FILE   draws the result, which needs matplotlib

A program has SIZE, on_mesh(client, size), in_numpy(size) and draw(figure, result).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shardcall as sc

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "show")
ROUNDS = 3


class Comparison(NamedTuple):
    """The result of a program on the mesh, the largest difference from NumPy's, and the times of both."""

    result: Any
    difference: float
    mesh_s: float
    numpy_s: float


def load(name: str) -> Any:
    """Imports a program of the gallery."""
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(program: Any, client: sc.Client, size: int, rounds: int = ROUNDS) -> Comparison:
    """Runs a program on the mesh and in NumPy; the first call, which compiles, is not timed."""
    result = program.on_mesh(client, size)
    mesh_s, _ = timed(lambda: program.on_mesh(client, size), rounds)
    numpy_s, expected = timed(lambda: program.in_numpy(size), rounds)
    scale = float(np.max(np.abs(expected))) or 1.0
    return Comparison(result, float(np.max(np.abs(result - expected))) / scale, mesh_s, numpy_s)


def timed(function: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Returns the shortest time of a function in seconds, and its result."""
    shortest, result = float("inf"), None
    for _ in range(rounds):
        start = time.perf_counter()
        result = function()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest, result


def draw(program: Any, result: Any, path: Path) -> None:
    """Writes the picture of a result; the suffix of the path is its format."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # only here, so that the programs run without it

    figure = Figure(figsize=(6, 4), layout="constrained")
    program.draw(figure, result)
    figure.savefig(path, dpi=120)


def main() -> int:
    """Runs the program; returns 0 if the results agree."""
    parser = argparse.ArgumentParser(description="Runs a program of the gallery.")
    parser.add_argument("program", choices=NAMES)
    parser.add_argument("address", nargs="?", help="a server, host:port; without it a private one is started")
    parser.add_argument("--size", type=int, help="the size of the problem; the program's own by default")
    parser.add_argument("--picture", type=Path, help="the file of the picture, such as heat.png")
    arguments = parser.parse_args()
    program = load(arguments.program)
    with sc.connect(arguments.address) if arguments.address else sc.local(devices=8) as client:
        compared = compare(program, client, arguments.size or program.SIZE)
    print(f"on the mesh {compared.mesh_s * 1e3:.1f} ms, in NumPy {compared.numpy_s * 1e3:.1f} ms")
    if arguments.picture:
        draw(program, compared.result, arguments.picture)
    agree = compared.difference < program.TOLERANCE
    print(f"{'yes' if agree else 'NO ':<4}the results differ by at most {compared.difference:.1g} of the largest value")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

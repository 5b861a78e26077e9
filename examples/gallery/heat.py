"""Heat: a plate whose edges stay cold cools down.

The heat equation by explicit steps. The step is the same function for NumPy and for the mesh, where `repeat` makes the
loop a part of the program, and devices exchange one row with each neighbour per step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, STEPS, TOLERANCE = 512, 400, 1e-12


def start(size: int) -> np.ndarray:
    """Returns three hot discs on a cold plate."""
    y, x = np.mgrid[:size, :size] / size
    discs = [(0.3, 0.3, 0.12), (0.7, 0.4, 0.2), (0.4, 0.75, 0.15)]
    return np.maximum.reduce([((x - a) ** 2 + (y - b) ** 2 < r**2) * 1.0 for a, b, r in discs])


def step(u: Any) -> Any:
    """Returns the temperatures after a step."""
    u = u.copy()
    inner = u[1:-1, 1:-1]
    u[1:-1, 1:-1] = inner + 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner)
    return u


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Runs the steps on 8 devices, each with a band of rows."""
    u = client.put(start(size), mesh=sc.Mesh(x=8), spec=sc.P("x", None))
    return client.jit(step).repeat(u, times=STEPS).get()


def in_numpy(size: int) -> np.ndarray:
    """Runs the steps in this process."""
    u = start(size)
    for _ in range(STEPS):
        u = step(u)
    return u


def draw(figure: Any, u: np.ndarray) -> None:
    """Draws the temperatures."""
    axes = figure.subplots()
    figure.colorbar(axes.imshow(u, cmap="inferno", origin="lower"), label="temperature")
    axes.set(xticks=[], yticks=[], title=f"after {STEPS} steps")

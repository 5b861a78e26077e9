"""N-body: two discs of stars pass each other.

Every star attracts every other one, so the forces of n stars take n² pairs. The stars are sharded, and every device
computes the forces on its stars from the positions of all, which the mesh gathers in each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, STEPS, TOLERANCE = 512, 50, 1e-6
DT, SOFTENING = 0.02, 0.05


def start(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions and the velocities of two rotating discs."""
    random = np.random.default_rng(0)
    radius, angle = np.sqrt(random.uniform(0.01, 1, size)), random.uniform(0, 2 * np.pi, size)
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    v = 0.7 * np.stack([-x[:, 1], x[:, 0]], 1)
    side = np.where(np.arange(size) % 2 == 0, 1.0, -1.0)[:, None]
    return x + side * np.array([1.3, 0.5]), v - side * np.array([0.8, 0.0])


def step(state: Any) -> Any:
    """Returns positions and velocities after a step; all masses are 1 / n."""
    x, v = state
    apart = x[None, :, :] - x[:, None, :]
    distance = np.sqrt((apart**2).sum(-1) + SOFTENING**2)
    v = v + DT * (apart / distance[:, :, None] ** 3).sum(1) / len(x)
    return x + DT * v, v


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Runs the steps on 8 devices, each with an eighth of the stars."""
    state = tuple(client.put(array, mesh=sc.Mesh(x=8), spec=sc.P("x", None)) for array in start(size))
    return client.jit(step).repeat(state, times=STEPS)[0].get()


def in_numpy(size: int) -> np.ndarray:
    """Runs the steps in this process."""
    state = start(size)
    for _ in range(STEPS):
        state = step(state)
    return state[0]


def draw(figure: Any, x: np.ndarray) -> None:
    """Draws the stars, each disc in its colour."""
    axes = figure.subplots()
    for first, colour in ((0, "tab:orange"), (1, "tab:blue")):
        axes.scatter(*x[first::2].T, s=4, color=colour)
    axes.set(aspect="equal", xticks=[], yticks=[], title=f"after {STEPS} steps")

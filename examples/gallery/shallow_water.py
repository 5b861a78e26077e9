"""Shallow water: a drop falls into a basin, and its rings meet across the edges.

A periodic basin, by forward and backward steps: first the flow from the slope of the surface, then the surface from the
flow. The devices are a grid of 4 × 2, and exchange rows and columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, STEPS, TOLERANCE = 384, 420, 1e-9
GRAVITY, DT = 1.0, 0.4


def start(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the depth of the water, with a drop, and its flow along rows and columns, which is 0."""
    y, x = np.mgrid[:size, :size] / size
    depth = 1 + 0.3 * np.exp(-((x - 0.4) ** 2 + (y - 0.35) ** 2) / 0.002)
    return depth, np.zeros((size, size)), np.zeros((size, size))


def step(state: Any) -> Any:
    """Returns depth and flow after a step."""
    depth, flow_y, flow_x = state
    flow_y = flow_y - DT * GRAVITY * (np.roll(depth, -1, 0) - depth)
    flow_x = flow_x - DT * GRAVITY * (np.roll(depth, -1, 1) - depth)
    y, x = depth * flow_y, depth * flow_x
    return depth - DT * (y - np.roll(y, 1, 0) + x - np.roll(x, 1, 1)), flow_y, flow_x


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Runs the steps on 4 × 2 devices, each with a rectangle."""
    state = tuple(client.put(array, mesh=sc.Mesh(y=4, x=2), spec=sc.P("y", "x")) for array in start(size))
    return client.jit(step).repeat(state, times=STEPS)[0].get()


def in_numpy(size: int) -> np.ndarray:
    """Runs the steps in this process."""
    state = start(size)
    for _ in range(STEPS):
        state = step(state)
    return state[0]


def draw(figure: Any, depth: np.ndarray) -> None:
    """Draws the depth."""
    axes = figure.subplots()
    figure.colorbar(axes.imshow(depth, cmap="viridis", origin="lower"), label="depth")
    axes.set(xticks=[], yticks=[], title=f"after {STEPS} steps")

"""Waves: a plane wave passes two slits, and its parts interfere.

The wave equation by the leapfrog scheme. The state is a pair of arrays, the heights of two successive steps, and
`repeat` carries any tree of arrays. The wall is an argument that does not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, STEPS, TOLERANCE = 512, 360, 1e-9


def start(size: int) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Returns the state, a wave that runs to the right, and the squares of the speeds: 0 in the wall."""
    y, x = np.mgrid[:size, :size] / size

    def wave(shift: float) -> np.ndarray:
        return np.exp(-(((x - 0.32 - shift) / 0.06) ** 2)) * np.sin(2 * np.pi * (x - shift) / 0.04)

    is_slit = (abs(y - 0.42) < 0.02) | (abs(y - 0.58) < 0.02)
    return (wave(0.5 / size), wave(0.0)), np.where((abs(x - 0.45) < 0.01) & ~is_slit, 0.0, 0.25)


def step(state: Any, speed: Any) -> Any:
    """Returns the next state; beyond an edge is the opposite one."""
    u, before = state
    curvature = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u
    return 2 * u - before + speed * curvature, u


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Runs the steps on 8 devices, each with a band of rows."""
    (u, before), speed = start(size)
    arrays = [client.put(array, mesh=sc.Mesh(x=8), spec=sc.P("x", None)) for array in (u, before, speed)]
    return client.jit(step).repeat((arrays[0], arrays[1]), arrays[2], times=STEPS)[0].get()


def in_numpy(size: int) -> np.ndarray:
    """Runs the steps in this process."""
    state, speed = start(size)
    for _ in range(STEPS):
        state = step(state, speed)
    return state[0]


def draw(figure: Any, u: np.ndarray) -> None:
    """Draws the heights, up to a third of the largest."""
    axes = figure.subplots()
    limit = abs(u).max() / 3
    axes.imshow(u, cmap="RdBu", vmin=-limit, vmax=limit, origin="lower")
    axes.axvline(0.45 * len(u), color="black", linestyle="dotted", linewidth=1)
    axes.set(xticks=[], yticks=[], title="height; the wall is dotted")

"""Mandelbrot: how soon the points of a plane escape.

An elementwise program: no device needs anything of another. With `exact=True` its results are those of NumPy, bit for
bit, so that not one pixel differs, although a small error would grow with every iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, STEPS, TOLERANCE = 640, 80, 1e-15


def points(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the real and the imaginary parts of the points, in 2 rows for 3 columns."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -2 : 1 : size * 3 // 2 * 1j]
    return x, y


def step(state: Any, a: Any, b: Any) -> Any:
    """Returns x + iy, squared and moved by a + ib, and the number of steps before it escapes."""
    x, y, count = state
    is_inside = x * x + y * y < 4
    following = x * x - y * y + a, 2 * x * y + b
    return np.where(is_inside, following[0], x), np.where(is_inside, following[1], y), count + is_inside


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Runs the steps on 8 devices, each with a band of rows."""
    a, b = (client.put(array, mesh=sc.Mesh(x=8), spec=sc.P("x", None)) for array in points(size))
    state = 0 * a, 0 * b, 0 * a
    return client.jit(step, exact=True).repeat(state, a, b, times=STEPS)[2].get()


def in_numpy(size: int) -> np.ndarray:
    """Runs the steps in this process."""
    a, b = points(size)
    state = 0 * a, 0 * b, 0 * a
    for _ in range(STEPS):
        state = step(state, a, b)
    return state[2]


def draw(figure: Any, count: np.ndarray) -> None:
    """Draws the numbers of steps."""
    axes = figure.subplots()
    axes.imshow(np.log1p(count), cmap="magma", extent=(-2, 1, -1, 1), origin="lower")
    axes.set(xlabel="real part", ylabel="imaginary part")

"""Network: two layers learn to distinguish two spirals.

The server takes the gradient of a loss that is written with NumPy's functions, and a step of gradient descent is one
program. The points are sharded and the weights are not, so devices sum their gradients. NumPy needs them written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, STEPS, TOLERANCE, WIDTH, RATE = 2048, 600, 1e-6, 32, 0.06


def start(size: int) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """Returns weights, points on two spirals with a third coordinate of 1, and 1 or -1 for the spiral of each."""
    random = np.random.default_rng(0)
    sign, radius = np.where(np.arange(size) % 2, 1.0, -1.0), np.sqrt(random.uniform(0.05, 1, size))
    x = np.stack([sign * radius * np.cos(4 * radius), sign * radius * np.sin(4 * radius), np.ones(size)], 1)
    return (random.normal(size=(3, WIDTH)) * 3, random.normal(size=WIDTH) / WIDTH), x, sign


def loss(weights: Any, x: Any, sign: Any) -> Any:
    """Returns the mean square of the errors."""
    return np.mean((np.tanh(x @ weights[0]) @ weights[1] - sign) ** 2)


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Trains on 8 devices, each with an eighth of the points."""
    weights, x, sign = start(size)

    def step(weights: Any, x: Any, sign: Any) -> Any:
        return tuple(w - RATE * slope for w, slope in zip(weights, client.grad(loss)(weights, x, sign), strict=True))

    there = [client.put(array, mesh=sc.Mesh(x=8), spec=sc.P("x")) for array in (x, sign)]
    return np.vstack([w.get() for w in client.jit(step).repeat(weights, *there, times=STEPS)])


def in_numpy(size: int) -> np.ndarray:
    """Trains in this process, with derivatives by hand."""
    (first, second), x, sign = start(size)
    for _ in range(STEPS):
        hidden = np.tanh(x @ first)
        error = 2 * (hidden @ second - sign) / size
        of_hidden = np.outer(error, second) * (1 - hidden**2)
        first, second = first - RATE * x.T @ of_hidden, second - RATE * hidden.T @ error
    return np.vstack([first, second])


def draw(figure: Any, weights: np.ndarray) -> None:
    """Draws what the network says of the plane, and points."""
    y, x = np.mgrid[-1.1:1.1:200j, -1.1:1.1:200j]
    said = np.tanh(np.stack([x, y, np.ones_like(x)], 2) @ weights[:3]) @ weights[3]
    axes, (_, points, sign) = figure.subplots(), start(400)
    axes.contourf(x, y, said.clip(-1.5, 1.5), levels=20, cmap="RdBu")
    axes.scatter(*points[:, :2].T, s=8, c=sign, cmap="RdBu", edgecolors="black", linewidths=0.3)
    axes.set(aspect="equal", xticks=[], yticks=[], title="what the network says")

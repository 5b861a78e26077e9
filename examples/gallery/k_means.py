"""K-means: points in the plane are divided among centres, and centres move to the means of their points.

The points are sharded, the centres are on every device. A step needs one sum over all devices: the sums and numbers of
points for each centre, a product of two matrices whose contracted axis is sharded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, STEPS, TOLERANCE = 100_000, 20, 1e-9
CENTRES = 6


def points(size: int) -> np.ndarray:
    """Returns points about some places, each with its spread."""
    random = np.random.default_rng(2)
    means, spreads = random.uniform(-4, 4, (CENTRES, 2)), random.uniform(0.3, 0.9, CENTRES)
    of = np.arange(size) % CENTRES
    return means[of] + spreads[of, None] * random.standard_normal((size, 2))


def nearest(centres: Any, x: Any) -> Any:
    """Returns the index of the nearest centre of every point."""
    return np.argmin(((x[:, None, :] - centres) ** 2).sum(-1), axis=1)


def step(centres: Any, x: Any) -> Any:
    """Returns the means of the points of every centre."""
    belongs = (nearest(centres, x)[:, None] == np.arange(CENTRES)).astype(float)
    return belongs.T @ x / belongs.sum(0)[:, None]


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Runs the steps on 8 devices, each with an eighth of the points."""
    x = client.put(points(size), mesh=sc.Mesh(x=8), spec=sc.P("x", None))
    return client.jit(step).repeat(points(size)[:CENTRES], x, times=STEPS).get()


def in_numpy(size: int) -> np.ndarray:
    """Runs the steps in this process."""
    x = points(size)
    centres = x[:CENTRES]
    for _ in range(STEPS):
        centres = step(centres, x)
    return centres


def draw(figure: Any, centres: np.ndarray) -> None:
    """Draws 3000 points in the colours of their centres."""
    axes = figure.subplots()
    x = points(3000)
    axes.scatter(*x.T, s=3, c=nearest(centres, x), cmap="tab10")
    axes.scatter(*centres.T, s=120, c="black", marker="x")
    axes.set(aspect="equal", xticks=[], yticks=[], title="points by their nearest centre")

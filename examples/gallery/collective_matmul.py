"""Collective matmul: a product whose left factor travels round a ring of devices while they multiply.

Every device has a band of rows of the left factor and needs the product of all. Instead of a gather and then a product,
bands pass from neighbour to neighbour, in both directions, and each is multiplied as it arrives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, TOLERANCE = 1024, 1e-12


def factors(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns two matrices of waves, whose product is a pattern of interference."""
    i, j = np.mgrid[:size, :size] / size
    return np.cos(2 * np.pi * (9 * i**2 + 4 * i * j)), np.sin(2 * np.pi * (5 * i * j + 7 * j**2))


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Multiplies on 8 devices, round a ring."""
    lhs, rhs = factors(size)
    return client.collective_matmul(
        lhs,
        rhs,
        mesh=sc.Mesh(x=8),
        axis_name="x",
        lhs_spec=sc.P("x", None),
        rhs_spec=sc.P(),
        out_spec=sc.P(),
        strategy="bidirectional_ring",
    ).array


def in_numpy(size: int) -> np.ndarray:
    """Multiplies in this process."""
    lhs, rhs = factors(size)
    return lhs @ rhs


def draw(figure: Any, product: np.ndarray) -> None:
    """Draws the factors and their product; lines divide the bands of the devices."""
    size = len(product)
    titles = "left, in bands", "right", "product"
    for axes, image, title in zip(figure.subplots(1, 3), (*factors(size), product), titles, strict=True):
        axes.imshow(image, cmap="twilight", origin="lower")
        axes.set(xticks=[], yticks=[], title=title)
        if title == titles[0]:
            for band in range(1, 8):
                axes.axhline(band * size / 8, color="white", linewidth=1)

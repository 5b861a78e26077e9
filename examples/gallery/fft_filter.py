"""FFT filter: stripes are removed from a picture by their frequencies.

Two Fourier transforms of the whole picture, each along both axes: the devices have bands of rows, then of columns, and
exchange them between. The program is NumPy's, with an array of the mesh.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import shardcall as sc

SIZE, TOLERANCE = 1024, 1e-10


def picture(size: int) -> np.ndarray:
    """Returns a picture of discs with diagonal stripes over it."""
    y, x = np.mgrid[:size, :size] / size
    discs = sum(np.exp(-(((x - a) ** 2 + (y - b) ** 2) / r**2) ** 4) for a, b, r in
                [(0.3, 0.35, 0.2), (0.7, 0.6, 0.25), (0.25, 0.8, 0.12)])  # fmt: skip
    return discs + 0.5 * np.sin(2 * np.pi * (24 * x + 17 * y))


def without_stripes(u: Any) -> Any:
    """Returns a picture without the frequencies about that of the stripes."""
    size = len(u)
    frequency = np.fft.fftfreq(size, 1 / size)
    y, x = frequency[:, None], frequency[None, :]
    near = np.exp(-((x - 24) ** 2 + (y - 17) ** 2) / 8) + np.exp(-((x + 24) ** 2 + (y + 17) ** 2) / 8)
    return np.real(np.fft.ifft2(np.fft.fft2(u) * (1 - near)))


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Filters on 8 devices, each with a band of rows."""
    return without_stripes(client.put(picture(size), mesh=sc.Mesh(x=8), spec=sc.P("x", None))).get()


def in_numpy(size: int) -> np.ndarray:
    """Filters in this process."""
    return without_stripes(picture(size))


def draw(figure: Any, u: np.ndarray) -> None:
    """Draws the picture with stripes and without."""
    before, after = figure.subplots(1, 2)
    for axes, image, title in ((before, picture(len(u)), "with stripes"), (after, u, "filtered")):
        axes.imshow(image, cmap="gray", origin="lower", vmin=-0.5, vmax=1.5)
        axes.set(xticks=[], yticks=[], title=title)

"""Black-Scholes: the prices of call options, by strike and by time until they expire.

A formula of elementwise functions for millions of options. Recorded calls run as one program, so that the mesh reads
and writes every number once; NumPy, with SciPy's error function, writes every intermediate result to memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import shardcall as sc

SIZE, TOLERANCE = 1500, 1e-9
SPOT, RATE, VOLATILITY = 100.0, 0.03, 0.25


def options(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns strikes, and years until the options expire, as two arrays of size × size."""
    strike, years = np.meshgrid(np.linspace(60, 140, size), np.linspace(0.05, 2, size))
    return strike, years


def price(strike: Any, years: Any, erf: Callable[[Any], Any]) -> Any:
    """Returns the prices of call options of the European kind."""
    spread = VOLATILITY * np.sqrt(years)
    first = (np.log(SPOT / strike) + (RATE + VOLATILITY**2 / 2) * years) / spread

    def normal(x: Any) -> Any:
        return 0.5 * (1 + erf(x / np.sqrt(2)))

    return SPOT * normal(first) - strike * np.exp(-RATE * years) * normal(first - spread)


def on_mesh(client: sc.Client, size: int) -> np.ndarray:
    """Prices the options on 8 devices, each with a band of rows."""
    strike, years = (client.put(array, mesh=sc.Mesh(x=8), spec=sc.P("x", None)) for array in options(size))
    return price(strike, years, client.xp.special.erf).get()


def in_numpy(size: int) -> np.ndarray:
    """Prices the options in this process."""
    from scipy.special import erf  # noqa: PLC0415  # a client alone has no SciPy

    return price(*options(size), erf)


def draw(figure: Any, prices: np.ndarray) -> None:
    """Draws the prices over strike and time."""
    axes = figure.subplots()
    lines = axes.contourf(*options(len(prices)), prices, levels=24, cmap="viridis")
    figure.colorbar(lines, label="price")
    axes.set(xlabel="strike", ylabel="years until the option expires", title=f"an option on {SPOT:g}")

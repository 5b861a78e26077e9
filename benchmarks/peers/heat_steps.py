"""The heat equation, written with NumPy's functions.

    python -m peers.heat_steps

``heat`` runs steps on an array of that many rows and columns, and takes the largest absolute value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from harness.answering import Answer, Handler, answer

_ELEMENTS = 40 << 20


def step(u: Any, roll: Callable[..., Any] = np.roll) -> Any:
    """Returns the array after one step, float64[N, N]."""
    return u + 0.1 * (roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4 * u)


@cache
def start(size: int) -> np.ndarray[Any, Any]:
    """Returns the array before the first step."""
    return np.random.default_rng(0).normal(size=(size, size))


def handler(put: Callable[[int], Any], one: Callable[[Any], Any], largest: Callable[[Any], Any]) -> Handler:
    """Returns the handler that runs steps.

    Args:
        put: returns the array of a size.
        one: makes a step.
        largest: returns the largest absolute value.
    """

    def heat(size: int) -> Answer:
        u = put(size)
        steps = max(5, _ELEMENTS // size**2)
        began = time.perf_counter()
        for _ in range(steps):
            u = one(u)
        float(largest(u))
        return {"seconds": [(time.perf_counter() - began) / steps]}

    return heat


if __name__ == "__main__":
    answer({"heat": handler(start, step, lambda u: np.abs(u).max())})

"""The jobs of the benchmark of traced programs, for arrays of NumPy, of `jax.numpy` and of the mesh."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from harness.answering import Answer

HEAT_STEPS = 100
JOBS = ("chain", "heat_float64", "heat_float32", "data_parallel", "data_and_tensor_parallel")
_ROWS = ("batch", None)
LAYOUTS: dict[str, tuple[dict[str, int], list[tuple[str | None, ...]]]] = {
    "data_parallel": ({"batch": 8}, [_ROWS, _ROWS, (), (), (), ()]),
    "data_and_tensor_parallel": (
        {"batch": 4, "model": 2},
        [_ROWS, _ROWS, (None, "model"), ("model",), ("model", None), ()],
    ),
}
"""By job: the mesh, and the specs of x, targets, and W and b of two layers."""

_RUNS = 5


def start(size: int) -> np.ndarray[Any, Any]:
    """Returns an array of normally distributed numbers, float64[size, size]."""
    return np.random.default_rng(0).normal(size=(size, size))


def chain(xp: Any, u: Any) -> Any:
    """Returns the sum of the hyperbolic tangents of half the differences."""
    return xp.tanh(xp.diff(u, axis=0) * 0.5).sum()


def heat(xp: Any, u: Any) -> Any:
    """Returns the array after a step of the heat equation."""
    return u + 0.1 * (xp.roll(u, 1, 0) + xp.roll(u, -1, 0) + xp.roll(u, 1, 1) + xp.roll(u, -1, 1) - 4 * u)


def network(width: int) -> list[np.ndarray[Any, Any]]:
    """Returns x, the targets, and W and b of two layers, float32."""
    random, batch = np.random.default_rng(0), width
    shapes = [(batch, width), (batch, 16), (width, width), (width,), (width, 16), (16,)]
    return [(random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32) for shape in shapes]


def loss(xp: Any, params: Any, x: Any, targets: Any) -> Any:
    """Returns the mean squared error of a network."""
    first, first_bias, second, second_bias = params
    return xp.mean((xp.tanh(x @ first + first_bias) @ second + second_bias - targets) ** 2)


def many(xp: Any, u: Any, nodes: int) -> Any:
    """Makes a number of calls of kernels."""
    for i in range(nodes // 2):
        u = xp.tanh(u) + u if i % 2 else xp.sin(u) * u
    return u


def timed(run: Callable[[], object]) -> Answer:
    """Returns the seconds of some runs."""
    seconds = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return {"seconds": seconds}

"""The heat equation with NumPy's functions: by NumPy, by a client, and by a jitted `jnp` function in this process.

    python -m peers.heat_steps numpy|client|jax [ADDRESS]

``heat`` runs steps on an array of that many rows and columns, and takes the largest absolute value.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from harness.answering import Answer, answer

_ELEMENTS = 40 << 20


def step(u: Any, roll: Callable[..., Any] = np.roll) -> Any:
    """A step, float64 [N, N]."""
    return u + 0.1 * (roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4 * u)


@cache
def start(size: int) -> np.ndarray[Any, Any]:
    """The array before the first step."""
    return np.random.default_rng(0).normal(size=(size, size))


def handler(put: Callable[[int], Any], one: Callable[[Any], Any], largest: Callable[[Any], Any]) -> Any:
    """Returns the handler that runs steps, after as many as make an array ready."""

    def heat(size: int) -> Answer:
        u = put(size)
        steps = max(5, _ELEMENTS // size**2)
        began = time.perf_counter()
        for _ in range(steps):
            u = one(u)
        float(largest(u))
        return {"seconds": [(time.perf_counter() - began) / steps]}

    return heat


def by_jax() -> tuple[Any, Any, Any]:
    """The parts of the job by JAX."""
    import jax
    import jax.numpy as jnp

    from peers import jax_job

    jax_job.configure()

    @cache
    def put(size: int) -> Any:
        return jax.block_until_ready(jax.device_put(start(size), jax_job.row_sharding(8)))

    jitted = jax.jit(lambda u: step(u, jnp.roll))
    # Each step is waited for: of 40 steps in flight XLA:CPU's collectives wait for each other for ever (jaxlib 0.10.1).
    return put, lambda u: jitted(u).block_until_ready(), lambda u: jnp.abs(u).max()


def by_client(address: str) -> tuple[Any, Any, Any]:
    """The parts of the job by a client."""
    import shardcall as sc

    client = sc.connect(address, fuse=True)

    @cache
    def put(size: int) -> Any:
        u = client.put(start(size), mesh=sc.Mesh(x=8), spec=sc.P("x", None))
        client.synchronize()
        return u

    return put, step, lambda u: np.abs(u).max()


def main() -> None:
    """Answers until standard input ends."""
    if sys.argv[1] == "jax":
        parts = by_jax()
    elif sys.argv[1] == "client":
        parts = by_client(sys.argv[2])
    else:
        parts = start, step, lambda u: np.abs(u).max()
    answer({"heat": handler(*parts)})


if __name__ == "__main__":
    main()

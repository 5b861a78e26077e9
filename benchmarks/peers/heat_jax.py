"""The heat equation by `jax.numpy`, jitted as one function for each step, on the mesh of this process.

python -m peers.heat_jax
"""

from __future__ import annotations

from functools import cache

import jax
import jax.numpy as jnp

from harness.answering import answer
from peers import jax_job
from peers.heat_steps import handler, start, step


@cache
def put(size: int) -> jax.Array:
    """Returns the array before the first step, sharded by rows over all devices."""
    array: jax.Array = jax.block_until_ready(jax.device_put(start(size), jax_job.row_sharding(jax_job.DEVICES)))
    return array


def main() -> None:
    """Answers until standard input ends."""
    jax_job.configure()
    jitted = jax.jit(lambda u: step(u, jnp.roll))
    # Each step is awaited: with 40 steps in flight, XLA:CPU's collectives deadlock (jaxlib 0.10.1).
    answer({"heat": handler(put, lambda u: jitted(u).block_until_ready(), lambda u: jnp.abs(u).max())})


if __name__ == "__main__":
    main()

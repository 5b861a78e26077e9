"""The jobs of `peers.traced_client` with `jax.jit`, on the mesh of this process.

    python -m peers.traced_jax

``chain_floor`` is the chain with functions as accurate as those of the server.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from harness.answering import answer
from peers import jax_job, traced_jobs
from shardcall_server.kernels.numerics import arithmetic


class _AccurateFunctions:
    """The functions of the chain, with the server's `tanh`, which errs by 1.4 units in the last place and not by 7."""

    diff = jnp.diff
    tanh = arithmetic.tanh


def _put(array: Any, axes: dict[str, int], spec: tuple[str | None, ...]) -> jax.Array:
    mesh = jax.make_mesh(tuple(axes.values()), tuple(axes), (AxisType.Auto,) * len(axes))
    placed: jax.Array = jax.block_until_ready(jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec))))
    return placed


def _steps(name: str, size: int) -> Any:
    """Returns a function that runs a job once and waits for the result."""
    if name.startswith("chain"):
        u = _put(traced_jobs.start(size), {"x": 8}, ("x", None))
        chain = jax.jit(lambda u: traced_jobs.chain(jnp if name == "chain" else _AccurateFunctions, u))
        return lambda: float(chain(u))
    if name.startswith("heat"):
        u = _put(traced_jobs.start(size).astype(name.removeprefix("heat_")), {"x": 8}, ("x", None))
        steps = jax.jit(
            lambda u: jax.lax.fori_loop(0, traced_jobs.HEAT_STEPS, lambda _, u: traced_jobs.heat(jnp, u), u)
        )
        return lambda: jax.device_get(steps(u))[0, 0]
    axes, specs = traced_jobs.LAYOUTS[name]
    arrays = [_put(a, axes, s) for a, s in zip(traced_jobs.network(size), specs, strict=True)]
    x, y, *params = arrays
    layouts = tuple(p.sharding for p in params)
    train = jax.jit(
        jax.value_and_grad(lambda params, x, y: traced_jobs.loss(jnp, params, x, y)), out_shardings=(None, layouts)
    )
    return lambda: float(jax.block_until_ready(train(tuple(params), x, y))[0])


def main() -> None:
    """Answers until standard input ends."""
    jax_job.configure()
    compiled_steps = cache(_steps)

    def job(name: str) -> Any:
        return lambda size: traced_jobs.timed(compiled_steps(name, size))

    answer({name: job(name) for name in (*traced_jobs.JOBS, "chain_floor")})


if __name__ == "__main__":
    main()

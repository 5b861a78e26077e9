"""The job as a user of JAX writes it without a server, for the servers of peers. It needs only JAX and NumPy.

``diff`` is `jax.numpy.diff`, the array sharded by rows before and after. ``halo`` is what a careful author writes:
every device takes its own differences and asks its neighbour for one row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from harness.answering import SHARDED_FROM_BYTES, NDArray

DEVICES = 8
NAMES = ("diff", "halo")
_ROWS = PartitionSpec("x")


def configure() -> None:
    """Configures JAX as in the server's worker."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)


def run(name: str, x: NDArray) -> NDArray:
    """Puts the array on the devices, computes its difference and gets the result."""
    sharding = row_sharding(devices_for(x))
    return np.asarray(_program(name, x.shape, x.dtype.name, sharding)(jax.device_put(x, sharding)))


def devices_for(x: NDArray) -> int:
    """Returns the number of devices for an array."""
    return DEVICES if x.nbytes >= SHARDED_FROM_BYTES else 1


@cache
def row_sharding(devices: int) -> NamedSharding:
    """Returns a sharding by rows over a number of devices."""
    mesh = jax.make_mesh((devices,), ("x",), (AxisType.Auto,), devices=jax.devices()[:devices])
    return NamedSharding(mesh, _ROWS)


@cache
def _program(name: str, shape: tuple[int, ...], dtype: str, sharding: NamedSharding) -> Callable[[jax.Array], Any]:
    jobs: dict[str, Callable[[jax.Array], Any]] = {
        "diff": lambda x: jnp.diff(x, axis=0, prepend=x.dtype.type(0)),
        "halo": jax.shard_map(partial(_halo, sharding.mesh.size), mesh=sharding.mesh, in_specs=_ROWS, out_specs=_ROWS),
    }
    argument = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    compiled: Callable[[jax.Array], Any] = jax.jit(jobs[name], out_shardings=sharding).lower(argument).compile()
    return compiled


def _halo(devices: int, block: jax.Array) -> jax.Array:
    before = jax.lax.ppermute(block[-1:], "x", [(i, i + 1) for i in range(devices - 1)])
    return block - jnp.concatenate([before, block[:-1]])

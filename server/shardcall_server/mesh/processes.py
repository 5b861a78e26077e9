"""Several processes as one mesh, by JAX's own distributed runtime."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import structlog
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardcall_worker.v1 import link_pb2

# Far below JAX's own 300, 100 and 300 s: whoever is late is started anew.
_JOIN_S = 60
_HEARTBEAT_S = 10
_SHUTDOWN_S = 5
# Not of JAX's public interface, which lets gloo listen where the host's name leads: on many machines to loopback.
_MODULE = "jax._src.lib"
_MAKE = "make_gloo_tcp_collectives"


def join_processes(process: link_pb2.Process) -> None:
    """Makes this process one of a mesh of several; returns when all have come.

    Process 0 coordinates the others, at its address and no other of its host. Collectives between CPUs go by gloo,
    whose processes listen at their own address each, at ports of the system's choosing.

    Raises:
        RuntimeError: the others did not come in time.
    """
    _listen_at(process.address)
    jax.distributed.initialize(
        process.coordinator,
        process.count,
        process.index,
        cluster_detection_method="deactivate",
        initialization_timeout=_JOIN_S,
        heartbeat_timeout_seconds=_HEARTBEAT_S,
        shutdown_timeout_seconds=_SHUTDOWN_S,
        coordinator_bind_address=process.coordinator,
    )


def _listen_at(address: str) -> None:
    library = getattr(import_module(_MODULE), "_jax", None)
    if not callable(make := getattr(library, _MAKE, None)):
        structlog.get_logger().warning(
            "this version of JAX cannot be told where gloo is to listen; it listens where the host's name leads",
            jax=jax.__version__,
        )
        return
    setattr(library, _MAKE, partial(make, hostname=address.strip("[]")))


def sum_of_processes(own: np.ndarray) -> np.ndarray:
    """The sum of what the processes have, in each of them: a collective, so all of them must come here.

    Args:
        own: uint8[n]; where one process has anything but 0, the others have 0.
    """
    first: dict[int, jax.Device] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    mesh = Mesh(np.array([first[process] for process in sorted(first)]), ("process",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("process",), ()))
    rows = jax.make_array_from_process_local_data(split, own[np.newaxis], (len(first), own.size))
    total = jax.jit(lambda a: jnp.sum(a, 0, dtype=jnp.uint8), out_shardings=whole)(rows)
    return np.array(total.addressable_data(0))

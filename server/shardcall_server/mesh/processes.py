"""Meshes of several processes, by JAX's distributed runtime."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import structlog
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardcall_worker.v1 import link_pb2

# Far below JAX's defaults of 300, 100 and 300 s: processes that are late are started again.
_JOIN_S = 60
_HEARTBEAT_S = 10
_SHUTDOWN_S = 5
# Private, since JAX's public interface lets gloo listen at the address of the host's name, often the loopback.
_MODULE = "jax._src.lib"
_MAKE = "make_gloo_tcp_collectives"


def join_processes(process: link_pb2.Process) -> None:
    """Joins this process to a mesh of several; returns when all have joined.

    Process 0 coordinates the others and listens at its address only. Collectives between CPUs use gloo, whose
    processes listen at one address each, at ports that the system chooses.

    Raises:
        RuntimeError: the others did not join in time.
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
            "this version of JAX has no setting for gloo's address; gloo listens at the address of the host's name",
            jax=jax.__version__,
        )
        return
    setattr(library, _MAKE, partial(make, hostname=address.strip("[]")))


def sum_of_processes(own: np.ndarray) -> np.ndarray:
    """Returns the sum over all processes; a collective that all of them must call.

    Args:
        own: uint8[n]; an element is nonzero in one process at most.
    """
    first: dict[int, jax.Device] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    mesh = Mesh(np.array([first[process] for process in sorted(first)]), ("process",))
    sharded, replicated = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("process",), ()))
    rows = jax.make_array_from_process_local_data(sharded, own[np.newaxis], (len(first), own.size))
    total = jax.jit(lambda a: jnp.sum(a, 0, dtype=jnp.uint8), out_shardings=replicated)(rows)
    return np.array(total.addressable_data(0))

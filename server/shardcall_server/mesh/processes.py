"""Meshes of several processes, by JAX's distributed runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import structlog
from jax import lax
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardcall_core.call_error import CallError
from shardcall_server.link.failures import decode_failure
from shardcall_server.mesh.failures import failure_of
from shardcall_worker.v1 import link_pb2

# Far below JAX's defaults of 300, 100 and 300 s, since processes that are late are started again.
_JOIN_S = 60
_HEARTBEAT_S = 10
_SHUTDOWN_S = 5
_MESSAGE_BYTES, _LENGTH_BYTES = 1024, 2
# Private, since JAX's public interface lets gloo listen at the address of the host's name, often the loopback.
_MODULE = "jax._src.lib"
_MAKE = "make_gloo_tcp_collectives"
# Private, since jax.extend has all primitives except this one.
_PARALLEL = "jax._src.lax.parallel"
_REDUCE_SCATTER = "reduce_scatter_p"


def join_processes(process: link_pb2.Process) -> None:
    """Joins this process to a mesh of several; returns when all have joined.

    Process 0 coordinates the others and listens at its address only. Collectives between CPUs use gloo, whose
    processes listen at one address each, at ports that the system chooses.

    Raises:
        RuntimeError: the others did not join in time.
    """
    _listen_at(process.address)
    _replace_reduce_scatters()
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


def _replace_reduce_scatters() -> None:
    """Lowers reduce-scatters of CPUs to all-to-alls and sums.

    gloo's reduce-scatter overwrites memory that it is still sending, and sometimes returns wrong values
    (https://github.com/jax-ml/jax/issues/40830, in jaxlib 0.10.1). The replacement sends the same number of bytes.
    """
    primitive = getattr(import_module(_PARALLEL), _REDUCE_SCATTER, None)
    if primitive is None:
        structlog.get_logger().warning(
            "this version of JAX does not let reduce-scatters be replaced; programs that have one are refused",
            jax=jax.__version__,
        )
        return
    lowering = mlir.lower_fun(sum_and_scatter, multiple_results=False)
    mlir.register_lowering(primitive, lowering, platform="cpu")


def sum_and_scatter(
    array: jax.Array,
    *,
    axis_name: str | tuple[str, ...],
    scatter_dimension: int,
    axis_index_groups: Sequence[Sequence[int]] | None,
    axis_size: int,
    tiled: bool,
) -> jax.Array:
    """Computes `jax.lax.psum_scatter` over ``axis_size`` devices by an all-to-all."""
    axis = scatter_dimension
    received = lax.all_to_all(array, axis_name, axis, axis, axis_index_groups=axis_index_groups, tiled=True)
    total = reduce(lax.add, jnp.split(received, axis_size, axis))
    return total if tiled else lax.squeeze(total, (axis,))


def sum_of_processes(local: np.ndarray) -> np.ndarray:
    """Returns the sum over all processes; a collective that all of them must call.

    Args:
        local: uint8[n]; an element is nonzero in one process at most.
    """
    # What adds up is compiled anew: of many sizes, the compiled programs would take memory for ever.
    return _sum_by_process(local, _adder())


def _sum_by_process(local: np.ndarray, add: Callable[[jax.Array], jax.Array]) -> np.ndarray:
    sharding = NamedSharding(_mesh_of_processes(), PartitionSpec("process"))
    rows = jax.make_array_from_process_local_data(sharding, local[np.newaxis], (jax.process_count(), local.size))
    return np.array(add(rows).addressable_data(0))


def _adder() -> Callable[[jax.Array], jax.Array]:
    replicated = NamedSharding(_mesh_of_processes(), PartitionSpec())
    return jax.jit(lambda a: jnp.sum(a, 0, dtype=jnp.uint8), out_shardings=replicated)


_message_adder = cache(_adder)  # for messages, which have one size


@cache
def _mesh_of_processes() -> Mesh:
    """Returns the mesh of the first device of each process."""
    first: dict[int, jax.Device] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Mesh(np.array([first[process] for process in sorted(first)]), ("process",))


def first_failure(error: Exception | None) -> CallError | None:
    """Returns the error of the first process that has one; a collective that all of them must call.

    Args:
        error: the error of this process.
    """
    rows = np.zeros((jax.process_count(), _MESSAGE_BYTES), np.uint8)
    if error is not None:
        data = _encoded(failure_of(error))
        rows[jax.process_index(), : len(data)] = np.frombuffer(data, np.uint8)
    for row in _sum_by_process(rows.reshape(-1), _message_adder()).reshape(rows.shape):
        if nbytes := int.from_bytes(row[:_LENGTH_BYTES].tobytes()):
            return decode_failure(link_pb2.Failure.FromString(row[_LENGTH_BYTES:][:nbytes].tobytes()))
    return None


def _encoded(failure: link_pb2.Failure) -> bytes:
    """Returns a failure and its length, without its end if it is long."""
    failure = link_pb2.Failure(reason=failure.reason, message=failure.message, field=failure.field)
    while failure.ByteSize() > _MESSAGE_BYTES - _LENGTH_BYTES:
        failure.message = failure.message[: len(failure.message) // 2]
    return failure.ByteSize().to_bytes(_LENGTH_BYTES) + failure.SerializeToString()

"""Size checks of calls and arrays, before compilation and execution."""

from __future__ import annotations

import jax

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, block_shape, format_spec, padded_shape
from shardcall_core.types.sizes import exact
from shardcall_server.host_memory import memory_bytes
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.link.wire import MAX_SPAN_BYTES, about


def check_size(problem: Problem, max_call_bytes: int, max_device_bytes: int) -> None:
    """Refuses a call whose arrays are too large, including padding and copies on several devices.

    Args:
        problem: the resolved call.
        max_call_bytes: the limit of operands and results together; 0 for none, if the results stay on the mesh.
        max_device_bytes: the limit of `check_memory`.

    Raises:
        CallError: CALL_TOO_LARGE, INVALID_SHAPE or OUT_OF_DEVICE_MEMORY.
    """
    arrays, specs = (*problem.operands, *problem.results), (*problem.in_specs, *problem.out_specs)
    nbytes = sum(array.nbytes for array in arrays if array is not None)
    if 0 < max_call_bytes < nbytes:
        raise CallError(
            Reason.CALL_TOO_LARGE,
            f"the operands and results of this call are {exact(nbytes)} together "
            f"(results: {shorten(', '.join(map(str, problem.results)))}) and one call may have "
            f"{exact(max_call_bytes)}; "
            "split the work, leave the results on the mesh (keep=True), or start the server with a larger "
            "--max-call-bytes",
            field="operands",
            metadata={"bytes": str(nbytes), "limit": str(max_call_bytes)},
        )
    placed = zip(arrays, specs, strict=True)
    nbytes = sum(check_placed(a, s, problem.mesh) for a, s in placed if a is not None and s is not None)
    check_memory(nbytes, max_device_bytes)


def check_placed(array: ArrayType, spec: Spec, mesh: MeshAxes) -> int:
    """Returns the bytes that an array takes on the devices, counting copies on several of them.

    Raises:
        CallError: INVALID_SHAPE, if the padded array is too large.
    """
    padded = ArrayType(padded_shape(array.shape, spec, mesh), array.dtype)
    if padded.span_bytes > MAX_SPAN_BYTES:
        raise CallError(
            Reason.INVALID_SHAPE,
            f"{shorten(str(array))}, sharded as {shorten(format_spec(spec))}, spans {about(padded.span_bytes)} bytes, "
            f"sizes of 0 counted as 1; at most {about(MAX_SPAN_BYTES)} are allowed",
            field="operands",
        )
    return ArrayType(block_shape(array.shape, spec, mesh), array.dtype).nbytes * mesh.device_count


def device_bytes() -> int:
    """Returns the memory of all devices as reported by the platform; 0 if it reports none."""
    local_bytes: int = sum((device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices())
    return local_bytes * int(
        jax.process_count()
    )  # other processes have equal devices, whose memory is not visible here


def check_memory(nbytes: int, limit_bytes: int) -> None:
    """Refuses arrays that the devices cannot hold; with virtual devices, the operating system would kill the process.

    Args:
        nbytes: the memory needed.
        limit_bytes: the memory of the devices; 0 for that reported by the platform, or else the host's memory.

    Raises:
        CallError: OUT_OF_DEVICE_MEMORY.
    """
    limit = limit_bytes or device_bytes() or memory_bytes()
    if nbytes > limit:
        raise CallError(
            Reason.OUT_OF_DEVICE_MEMORY,
            f"the devices would need {exact(nbytes)} together, copies on several devices counted, and there are "
            f"{exact(limit)}, {exact(nbytes - limit)} too few; shard the arrays instead of replicating them, make "
            "them smaller, or "
            "start the server with a larger --max-device-bytes",
            field="mesh",
            metadata={
                "limit": "max_device_bytes",
                "bytes": str(nbytes),
                "limit_bytes": str(limit),
                "missing_bytes": str(nbytes - limit),
            },
        )

"""The state of the server as the live page shows it."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardcall.v1 import server_info_service_pb2
from shardcall_core.types import mesh as meshes
from shardcall_core.types import specs
from shardcall_core.types.blocks import block_grid
from shardcall_server.frontend.memory.leases import ResidentArray
from shardcall_server.frontend.observability.recent_calls import EndedCall, RecentCalls
from shardcall_server.frontend.programs.cache_entry import CachedProgram
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_worker.v1 import link_pb2

_MAX_COUNTED = 1024  # arrays whose bytes are counted by device
_MAX_ARRAYS = 24
_MAX_BLOCKS = 64
_MAX_ROWS = 24
_MAX_KERNELS = 64
_MAX_WAITING = 64
_MAX_DEVICES = 256
_MAX_PHASES = 32

Json = dict[str, Any]


@dataclass(frozen=True)
class SnapshotSources:
    """The objects whose state the live page shows.

    Attributes:
        address: the address of the server.
        usage: returns the usage of memory, devices and programs.
        draining: returns whether the server shuts down.
        ready: returns the last description of the mesh; None before the first.
        mesh_axes: returns the axes of the default mesh.
        exits: returns the number of exits of the mesh by cause.
        arrays: returns the newest resident arrays, at most as many as asked for.
        max_resident_bytes: returns the limit of resident arrays.
        programs: returns the programs used last, at most as many as asked for.
        streams: returns the open call streams of each client, and their unanswered calls.
        waiting: returns calls that wait for the mesh, at most as many as asked for, their positions and when they began
            to wait.
        recent: the last calls and errors.
    """

    address: str
    usage: Callable[[], server_info_service_pb2.GetUsageResponse]
    draining: Callable[[], bool]
    ready: Callable[[], link_pb2.Ready | None]
    mesh_axes: Callable[[link_pb2.Ready], Sequence[tuple[str, int]]]
    exits: Callable[[], Mapping[str, int]]
    arrays: Callable[[int], Sequence[ResidentArray]]
    max_resident_bytes: Callable[[], int]
    programs: Callable[[int], Sequence[CachedProgram]]
    streams: Callable[[], Mapping[str, tuple[int, int]]]
    waiting: Callable[[int], Sequence[tuple[ServerCall, int, float]]]
    recent: RecentCalls


def snapshot(sources: SnapshotSources) -> Json:
    """Returns the state as values of JSON; lists are limited, and names are as clients chose them."""
    usage, arrays = sources.usage(), sources.arrays(_MAX_COUNTED)
    return {
        "address": sources.address,
        "time": time.time(),
        "mesh": _mesh(sources, usage, arrays),
        "hosts": [_host(host) for host in usage.mesh.hosts],
        "memory": {
            "array_bytes": usage.array_bytes,
            "max_array_bytes": sources.max_resident_bytes(),
            "program_bytes": usage.program_device_bytes,
            "host_bytes": usage.bytes_in_use,
            "leases": usage.leases,
            "arrays": usage.arrays,
        },
        "principals": [_principal(item) for item in _busiest(usage)],
        "ended_calls": sum(item.ended_calls for item in usage.by_principal),
        "kernels": [_total(item) for item in sorted(usage.kernels, key=lambda item: -item.calls)[:_MAX_KERNELS]],
        "arrays": [_array(item) for item in _largest(arrays)],
        "queue": _queue(usage, sources.waiting(_MAX_WAITING)),
        "streams": [
            {"client": name, "streams": streams, "unanswered": unanswered}
            for name, (streams, unanswered) in itertools.islice(sources.streams().items(), _MAX_ROWS)
        ],
        "programs": [_program(item, sources.recent) for item in sources.programs(_MAX_ROWS)],
        "loops": [_loop(item) for item in usage.loops][:_MAX_ROWS],
        "calls": [_call(item) for item in sources.recent.calls()],
        "errors": list(_errors(sources.recent)),
    }


def _mesh(
    sources: SnapshotSources, usage: server_info_service_pb2.GetUsageResponse, arrays: Sequence[ResidentArray]
) -> Json:
    ready, state, held = sources.ready(), usage.mesh, _bytes_by_device(arrays)
    devices = ready.devices[:_MAX_DEVICES] if ready is not None else []
    return {
        "ready": state.ready,
        "draining": sources.draining(),
        "ready_s": state.ready_seconds,
        "restarts": state.restarts,
        "exits": {cause: count for cause, count in sources.exits().items() if count},
        "last_exit_reason": state.last_exit_reason,
        "exit_s": state.seconds_since_exit,
        "spare_ready": state.spare_ready,
        "missing": state.missing,
        "platform": ready.platform if ready is not None else "",
        "axes": list(sources.mesh_axes(ready)) if ready is not None else [],
        "device_count": len(ready.devices) if ready is not None else 0,
        "devices": [
            {"id": device.id, "name": device.kind, "process": device.process_index, "bytes": held[device.id]}
            for device in devices
        ],
    }


def _bytes_by_device(arrays: Sequence[ResidentArray]) -> Counter[int]:
    held: Counter[int] = Counter()
    for resident in arrays:
        ids = resident.mesh.device_ids
        for device in ids:
            held[device] += resident.device_bytes // len(ids)
    return held


def _largest(arrays: Sequence[ResidentArray]) -> list[ResidentArray]:
    return sorted(arrays, key=lambda resident: -resident.device_bytes)[:_MAX_ARRAYS]


def _array(resident: ResidentArray) -> Json:
    return {
        "principal": resident.owner,
        "name": resident.name,
        "shape": list(resident.type.shape),
        "dtype": str(resident.type.dtype),
        "bytes": resident.device_bytes,
        "spec": str(specs.from_proto(resident.placement.spec)),
        "pending": resident.computed is not None and not resident.computed.done(),
        **_blocks(resident),
    }


def _blocks(resident: ResidentArray) -> Json:
    """Returns the number of blocks along each axis, and the devices that hold each block, in row-major order."""
    mesh = meshes.from_proto(resident.mesh)
    grid = block_grid(resident.type.shape, specs.from_proto(resident.placement.spec), mesh)
    holders = [grid.holders[block] for block in sorted(grid.holders)]
    return {"counts": list(grid.counts), "blocks": [list(devices) for devices in holders[:_MAX_BLOCKS]]}


def _host(host: server_info_service_pb2.HostState) -> Json:
    return {
        "name": host.name,
        "present": host.present,
        "process": host.process_index,
        "devices": host.device_count,
        "absent_s": host.absent_seconds,
        "absent_reason": host.absent_reason,
        "sent_bytes": host.sent_bytes,
        "received_bytes": host.received_bytes,
    }


def _busiest(usage: server_info_service_pb2.GetUsageResponse) -> list[server_info_service_pb2.PrincipalUsage]:
    """Returns the principals with the largest arrays or, of those with none, most calls."""
    return sorted(usage.by_principal, key=lambda item: (-item.array_bytes, -item.ended_calls))[:_MAX_ROWS]


def _principal(item: server_info_service_pb2.PrincipalUsage) -> Json:
    return {
        "name": item.name,
        "arrays": item.arrays,
        "bytes": item.array_bytes,
        "max_bytes": item.max_bytes if item.HasField("max_bytes") else None,
        "programs": item.programs,
        "calls": item.calls,
        "ended": item.ended_calls,
    }


def _total(item: server_info_service_pb2.CallTotals) -> Json:
    return {
        "name": item.name,
        "calls": item.calls,
        "failed": item.failed_calls,
        "execute_s": item.execute_seconds,
        "bytes": item.array_bytes,
    }


def _queue(usage: server_info_service_pb2.GetUsageResponse, waiting: Sequence[tuple[ServerCall, int, float]]) -> Json:
    now = time.monotonic()
    first = sorted((item for item in waiting if item[1]), key=lambda item: item[1])[:_MAX_ROWS]
    return {
        "calls": usage.calls,
        "queued": usage.queued_calls,
        "waiting": [
            {
                "position": position,
                "client": call.owner,
                "kernel": call.kernel,
                "request_id": call.request_id,
                "s": max(0.0, now - began),
            }
            for call, position, began in first
        ],
    }


def _program(program: CachedProgram, recent: RecentCalls) -> Json:
    counts = recent.of_program(program.key)
    return {
        "kernel": program.kernel,
        "kernels": list(program.kernels[:_MAX_ROWS]),
        "key": program.key[:12],
        "client": program.owner,
        "bytes": program.program_bytes,
        "device_bytes": program.device_bytes,
        "compile_s": program.compile_s,
        "from_disk": program.from_disk,
        "hits": counts.hits,
        "execute_s": counts.execute_s,
    }


def _loop(loop: server_info_service_pb2.RunningLoop) -> Json:
    return {
        "client": loop.caller,
        "request_id": loop.request_id,
        "iterations": loop.iterations,
        "left": loop.iterations_left,
        "s": loop.seconds,
    }


def _call(call: EndedCall) -> Json:
    began = call.ended_at - call.total_s
    return {
        "method": call.method,
        "kernel": call.kernel,
        "client": call.principal,
        "request_id": call.request_id,
        "ago_s": time.monotonic() - call.ended_at,
        "s": call.total_s,
        "bytes": call.array_bytes,
        "reason": call.reason.value if call.reason is not None else "",
        "phases": [
            [name, max(0.0, ended - seconds - began), seconds] for name, seconds, ended in call.phases[:_MAX_PHASES]
        ],
    }


def _errors(recent: RecentCalls) -> Iterator[Json]:
    now = time.monotonic()
    for error in recent.errors():
        yield {
            "method": error.method,
            "kernel": error.kernel,
            "client": error.principal,
            "request_id": error.request_id,
            "reason": error.reason.value,
            "ago_s": now - error.ended_at,
            "count": error.count,
        }

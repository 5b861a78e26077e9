"""Checks of a server through a client: versions, mesh, devices, limits, results and shared memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np

from shardcall.cli.checks import Check, failed, ok, skipped, warning
from shardcall.client import Client
from shardcall_core.access.addresses import Address
from shardcall_core.types.errors import AccessDeniedError
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.server_info import ServerInfo
from shardcall_core.types.sizes import human
from shardcall_core.types.specs import P
from shardcall_core.types.usage import Usage
from shardcall_core.versions import build_version, number_of

_ROUNDS = 5
_SMALL = 4099  # elements, which no mesh of 2 to 512 devices divides
_SLOW_S = 0.05


def versions(info: ServerInfo) -> Iterator[Check]:
    """Compares the versions of client and server, and says whether a difference matters."""
    theirs, ours = info.versions.shardcall, build_version()
    text = f"the server is shardcall {theirs}, jax {info.versions.jax}, jaxlib {info.versions.jaxlib}"
    if theirs == ours:
        yield ok("versions", f"{text}, like this client")
        return
    text += f", and this client shardcall {ours}"
    if number_of(theirs) > number_of(ours):
        yield ok("versions", f"{text}: a newer server serves all calls of an older client")
        return
    if number_of(theirs) < number_of(ours):
        matters = "calls that need something newer are refused by name"
    else:
        matters = "they are different builds of one version, and what only one has is refused by name"
    yield warning("versions", f"{text}: {matters}", "install the same version on both sides")


def devices(info: ServerInfo) -> Iterator[Check]:
    """Checks the mesh and its devices."""
    if not info.ready:
        waits = f" and waits for {info.missing}" if info.missing else ""
        yield failed("mesh", f"it restarts{waits}", "wait, and see: shardcall status")
    count = len(info.devices)
    device_kinds = ", ".join(sorted({device.device_kind for device in info.devices}))
    text = f"{count} {info.platform} device{'s' * (count != 1)} ({device_kinds}), default {info.default_mesh.short}"
    if count == 1 and info.platform == "cpu":
        yield warning(
            "devices", f"{text}: nothing can be sharded", "start it with virtual devices: shardcall serve --devices 8"
        )
    else:
        yield ok("devices", text)
    absent = [str(host) for host in info.hosts if not host.present]
    if absent:
        yield failed("hosts", f"missing: {', '.join(absent)}", "start there: shardcall worker --join SERVER:8471")


def known_answers(info: ServerInfo) -> Iterator[Check]:
    """Checks the results of the server's own tests of its compiler."""
    if failures := info.known_answers.failures:
        names = ", ".join(map(str, failures))
        yield failed("known answers", f"the compiler gets kernels wrong, which are refused: {names}", "change jaxlib")
    elif info.known_answers.pending:
        yield ok("known answers", f"{info.known_answers}; the others run when they are needed, or while it is idle")
    else:
        yield ok("known answers", str(info.known_answers))


def results(client: Client, info: ServerInfo) -> Iterator[Check]:
    """Checks calls against NumPy, on one device and on all."""
    x = np.random.default_rng(0).standard_normal(_SMALL)
    count = len(info.devices)
    for name, mesh in (("one device", Mesh(x=1)), (f"{count} devices", Mesh(x=count))):
        got = client.diff(x, mesh=mesh, spec=P("x")).array
        if not np.array_equal(got, np.diff(x)):
            yield failed(
                "results", f"diff on {name} differs from NumPy's", "see known answers; report it with these versions"
            )
            return
    total = client.sum(np.arange(_SMALL), mesh=Mesh(x=count), spec=P("x")).array
    if total != _SMALL * (_SMALL - 1) // 2:
        yield failed("results", f"sum on {count} devices is {total}", "report it with these versions")
        return
    yield ok("results", f"diff and sum equal NumPy's on 1 and on {count} devices")


def latency(client: Client) -> Iterator[Check]:
    """Times small calls."""
    x, times = np.arange(16.0), []
    for _ in range(_ROUNDS + 1):
        begin = time.perf_counter()
        client.diff(x)
        times.append(time.perf_counter() - begin)
    middle = statistics.median(times[1:])
    text = f"{middle * 1e3:.2g} ms for a small call"
    if middle > _SLOW_S:
        yield warning("latency", text, "shardcall bench shows how much of it is the network")
    else:
        yield ok("latency", text)


def shared_memory(client: Client, info: ServerInfo, where: Address) -> Iterator[Check]:
    """Checks that large arrays do not pass through messages on one machine."""
    if not where.is_local:
        yield skipped("shared memory", "the server is on another machine, or behind a forwarded port")
    elif not info.limits.max_segment_bytes:
        yield warning("shared memory", "the server shares none", "start it with --segments")
    elif client._shared_memory is None:
        yield warning(
            "shared memory",
            "this client cannot use it: the server belongs to another user, runs in a container, or is behind a "
            "forwarded port",
            "start a server of this user: large arrays are several times as fast",
        )
    else:
        yield ok("shared memory", f"up to {human(info.limits.max_segment_bytes)} for this client")


def limits(info: ServerInfo) -> Iterator[Check]:
    """States the limits that calls meet first."""
    held = info.limits
    yield ok(
        "limits",
        f"one call: {human(held.max_call_bytes)}, {held.max_call_seconds:g} s; on the devices: "
        f"{human(held.max_device_bytes)}, {human(held.max_resident_bytes)} of it arrays of one client",
    )


def usage(take: Usage | AccessDeniedError) -> Iterator[Check]:
    """Checks the history and the use of the mesh, which only an administrator sees."""
    if isinstance(take, AccessDeniedError) or take.is_partial:
        yield skipped("restarts", "they need a token of scope admin: shardcall token show --admin")
        return
    mesh = take.mesh
    if mesh.restarts:
        yield warning(
            "restarts",
            f"{mesh.restarts} since the server's start, the last {mesh.seconds_since_exit:.0f} s ago: "
            f"{mesh.last_exit_reason}",
            "see docs/recovery.md for this reason",
        )
    else:
        yield ok("restarts", "none since the server's start")
    if take.queued_calls:
        yield ok("queue", f"{take.queued_calls} of {take.calls} calls wait for the mesh")

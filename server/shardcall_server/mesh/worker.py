"""The mesh worker: one process that owns the devices and does what the link says, in order."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points, version
from pathlib import Path

import jax
import structlog

from shardcall._src.wire.private_files import PrivateFileError
from shardcall.v1 import server_info_service_pb2
from shardcall_server.compilation.disk_cache import DiskCache, use_disk_cache, write_from_this_process
from shardcall_server.compilation.keys import Platform
from shardcall_server.errors import CallError, Reason
from shardcall_server.kernels.kernel import Kernel
from shardcall_server.launcher import gpu_platforms
from shardcall_server.link.framing import Link, LinkClosedError
from shardcall_server.log_setup import configure_logging
from shardcall_server.mesh.commands import Commands
from shardcall_server.mesh.failures import failure_of
from shardcall_server.mesh.heartbeat import beat, keep_beating
from shardcall_server.mesh.plans import describe_kernel
from shardcall_server.mesh.processes import join_processes
from shardcall_server.mesh.sizes import device_bytes
from shardcall_worker.v1 import link_pb2


def run(link_fd: int, log_level: str) -> int:
    """Runs a worker until the front end is gone; `start.py` has settled whom the process ends with.

    Args:
        link_fd: the descriptor of its link.
        log_level: the least level that it logs.

    Returns:
        The process's exit status.
    """
    configure_logging(log_level)
    link = Link(socket.socket(fileno=link_fd))
    frames = link.frames()
    kernels = load_kernels()
    beat(link)  # a spare stands by from here on
    first, fd = next(frames, (None, None))
    if fd is not None:  # an agent hands on the front end's own socket
        link = Link(socket.socket(fileno=fd))
        frames = link.frames()
        first, _ = next(frames, (None, None))
    if first is None:
        return 0
    start = link_pb2.FrontEndMessage.FromString(first).start
    keep_beating(link, alone=start.process.count <= 1)
    disk = _open_disk_cache(start)
    try:
        start_backend(start)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        structlog.get_logger().error("the devices could not be started", reason=reason)
        failure = failure_of(CallError(Reason.MESH_NOT_READY, reason))
        with suppress(LinkClosedError):  # then there is nobody to tell
            link.send(link_pb2.WorkerMessage(failure=failure).SerializeToString())
        return 1
    ready = _ready(kernels)
    commands = Commands(link, kernels, _platform(), disk)
    ready.known_answers.extend(commands.known_answers.describe())
    link.send(link_pb2.WorkerMessage(ready=ready).SerializeToString())
    for body, fd in frames:
        if not commands.handle(link_pb2.FrontEndMessage.FromString(body), fd):
            break
    else:
        # The front end is gone and nobody waits for an answer: do not wait for the devices either.
        os._exit(0)
    commands.close()
    return 0


def load_kernels() -> dict[str, Kernel]:
    """The kernels of every installed distribution, by name; an entry point makes one, or several.

    Those that cannot be loaded or described are left out, and so is one that takes another's name: a stranger's
    package must not keep the server from starting, nor stand in for ours.
    """
    log = structlog.get_logger()
    kernels: dict[str, Kernel] = {}
    for entry in sorted(entry_points(group="shardcall.kernels"), key=_ours_first):
        try:
            made = entry.load()()
            found = {kernel.name: kernel for kernel in ((made,) if isinstance(made, Kernel) else made)}
            for kernel in found.values():
                describe_kernel(kernel)
            if taken := sorted(found.keys() & kernels.keys()):
                raise ValueError(f"there are kernels called {', '.join(taken)} already")
        except (Exception, SystemExit):  # a package may take its import for its start
            log.exception("a kernel could not be loaded", kernel=entry.name, package=entry.value)
            continue
        kernels |= found
    return dict(sorted(kernels.items()))


def _ours_first(entry: EntryPoint) -> tuple[bool, str]:
    return not entry.value.startswith("shardcall_server."), entry.name


def start_backend(start: link_pb2.Start) -> None:
    """Brings the devices up, with element types as asked (x64 on)."""
    jax.config.update("jax_enable_x64", True)
    # A compiled program's text goes to clients; the server's paths do not.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    if start.platform:
        jax.config.update("jax_platforms", jax_platforms(start.platform))
    if start.virtual_devices:
        jax.config.update("jax_num_cpu_devices", start.virtual_devices)
    if start.process.count > 1:
        join_processes(start.process)
    try:
        jax.devices()
    except AssertionError:  # JAX's plugin is there and no device
        raise RuntimeError(
            f"JAX finds no device of platform {start.platform}; see whether its driver is there"
        ) from None


def jax_platforms(platform: str) -> str:
    """A platform as JAX calls it, which fails for one whose plugin is missing, though there is another for GPUs.

    Raises:
        RuntimeError: it has no plugin for GPUs.
    """
    if platform != "gpu":
        return platform
    if not (found := gpu_platforms()):
        raise RuntimeError(
            "JAX is installed without GPUs; add its extra for them, such as jax[cuda13], in its own version"
        )
    return ",".join(found)


def _open_disk_cache(start: link_pb2.Start) -> DiskCache | None:
    if not start.program_dir:
        return None
    try:
        if start.process.index:
            write_from_this_process()
        return use_disk_cache(Path(start.program_dir), start.max_program_dir_bytes)
    except PrivateFileError as error:  # the front end has looked; it has become another's since
        structlog.get_logger().warning("no compiled programs are kept on disk", reason=str(error))
        return None


def _platform() -> Platform:
    return Platform(
        device_kind=jax.devices()[0].device_kind,
        jax=f"{jax.__version__} / {version('jaxlib')}",
        flags=os.environ.get("XLA_FLAGS", ""),
    )


def _ready(kernels: dict[str, Kernel]) -> link_pb2.Ready:
    return link_pb2.Ready(
        devices=[
            server_info_service_pb2.Device(id=i, kind=d.device_kind, process_index=d.process_index)
            for i, d in enumerate(jax.devices())
        ],
        platform=jax.default_backend(),
        versions=server_info_service_pb2.Versions(
            shardcall=version("shardcall"), jax=jax.__version__, jaxlib=version("jaxlib")
        ),
        kernels=[describe_kernel(kernel) for kernel in kernels.values()],
        device_bytes=device_bytes(),
    )

"""Mesh worker: the process that owns the devices and executes the commands of the link in order."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path

import jax
import structlog

from shardcall.v1 import server_info_service_pb2
from shardcall_core.call_error import DEVICES_FAILED, CallError, Reason
from shardcall_core.wire.private_files import PrivateFileError
from shardcall_server.compilation.keys import Platform, code_digest
from shardcall_server.compilation.processor import host_processor
from shardcall_server.compilation.program_store import ProgramStore
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.launcher import gpu_platforms
from shardcall_server.link.framing import Link, LinkClosedError
from shardcall_server.log_output import finish_log, restart_log_output
from shardcall_server.log_setup import configure_logging
from shardcall_server.mesh.commands import Commands
from shardcall_server.mesh.compiler_process import serve_jobs
from shardcall_server.mesh.compilers import Compiler, ForkedCompiler, LocalCompiler
from shardcall_server.mesh.failures import failure_of
from shardcall_server.mesh.forking import ForkServer
from shardcall_server.mesh.heartbeat import send_heartbeat, start_heartbeats
from shardcall_server.mesh.plans import describe_kernel
from shardcall_server.mesh.processes import join_processes
from shardcall_server.mesh.sizes import device_bytes
from shardcall_worker.v1 import link_pb2


def run(link_fd: int, log_level: str, *, is_text: bool = False) -> int:
    """Runs a worker until the front end is gone.

    Args:
        link_fd: the descriptor of its link.
        log_level: the lowest level that it logs.
        is_text: True if it logs text and not JSON.

    Returns:
        The exit status of the process.
    """
    configure_logging(log_level, is_text=is_text)
    link = Link(socket.socket(fileno=link_fd))
    batches = link.batches()
    thread_count = _thread_count()
    kernels = load_kernels()
    may_fork = _thread_count() <= thread_count  # a fork would not have the threads that an installed kernel has started
    send_heartbeat(link)  # from here on, the process is a spare
    batch = next(batches, [])
    if batch and (fd := batch[0][1]) is not None:  # the front end's own socket, passed on by an agent
        link = Link(socket.socket(fileno=fd))
        batches = link.batches()
        batch = next(batches, [])
    if not batch:
        return 0
    start = link_pb2.FrontEndMessage.FromString(batch[0][0]).start
    compiler = _compiler(start, kernels, may_fork=may_fork)  # before this process has other threads
    start_heartbeats(link, alone=start.process.count <= 1)
    try:
        start_backend(start)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        structlog.get_logger().error(DEVICES_FAILED, reason=reason)
        failure = failure_of(CallError(Reason.MESH_NOT_READY, reason))
        with suppress(LinkClosedError):
            link.send(link_pb2.WorkerMessage(failure=failure).SerializeToString())
        return 1
    ready = _ready(kernels)
    commands = Commands(link, kernels, _platform(), compiler)
    ready.known_answers.extend(commands.known_answers.describe())
    link.send(link_pb2.WorkerMessage(ready=ready).SerializeToString())
    for frames in chain([batch[1:]], batches):
        if not commands.handle_batch(frames):
            break
    else:
        # The front end is gone and no call waits for an answer, so do not wait for the devices.
        os._exit(0)
    commands.close()
    return 0


def _thread_count() -> int:
    """Returns the number of threads of this process, those of libraries too; 0 if unknown."""
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0


def _compiler(start: link_pb2.Start, kernels: Mapping[str, Kernel], *, may_fork: bool) -> Compiler:
    """Returns the compiler of this worker, whose processes start their devices while this one does."""
    store = _open_store(start)
    process = start.process
    code = f"{code_digest(kernels.values(), jax.config.values)} {process.index}/{process.count}" if store else ""
    if process.count > 1 or not _is_on_cpus(start.platform) or sys.platform != "linux":
        return LocalCompiler(store, code)
    if not may_fork:
        structlog.get_logger().warning("an installed kernel starts threads when it is imported; the worker compiles")
        return LocalCompiler(store, code)

    def serve(jobs: socket.socket) -> None:
        restart_log_output()
        try:
            start_backend(start)
            serve_jobs(Connection(jobs.detach()), kernels, _platform(), start.max_compiler_bytes)
        except Exception:  # noqa: BLE001  # such as of the devices; the program fails
            structlog.get_logger().exception("a compiler process failed")
        finally:
            finish_log()

    return ForkedCompiler(store, code, ForkServer(serve), start.max_compile_seconds)


def _is_on_cpus(platform: str) -> bool:
    """Returns whether a platform, or without one what JAX selects, is certain to be CPUs."""
    platform = platform or os.environ.get("JAX_PLATFORMS", "")
    return platform == "cpu" or not (platform or gpu_platforms() or find_spec("libtpu"))


def load_kernels() -> dict[str, Kernel]:
    """Returns the kernels of all installed distributions, by name; an entry point creates one or several.

    Kernels that cannot be loaded or described are omitted, and so are those whose name is taken. A third-party package
    must neither prevent the start of the server nor replace a built-in kernel.
    """
    log = structlog.get_logger()
    kernels: dict[str, Kernel] = {}
    for entry in sorted(entry_points(group="shardcall.kernels"), key=_ours_first):
        try:
            created = entry.load()()
            loaded = {kernel.name: kernel for kernel in ((created,) if isinstance(created, Kernel) else created)}
            for kernel in loaded.values():
                describe_kernel(kernel)
            if taken := sorted(loaded.keys() & kernels.keys()):
                raise ValueError(f"there are kernels called {', '.join(taken)} already")
        except (Exception, SystemExit):  # importing a package may exit
            log.exception("a kernel could not be loaded", kernel=entry.name, package=entry.value)
            continue
        kernels |= loaded
    return dict(sorted(kernels.items()))


def _ours_first(entry: EntryPoint) -> tuple[bool, str]:
    return not entry.value.startswith("shardcall_server."), entry.name


def start_backend(start: link_pb2.Start) -> None:
    """Starts the devices, with 64-bit element types enabled."""
    jax.config.update("jax_enable_x64", True)
    # Clients get the text of compiled programs, but not the server's paths.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    if start.platform:
        jax.config.update("jax_platforms", jax_platforms(start.platform))
    if start.virtual_devices:
        jax.config.update("jax_num_cpu_devices", start.virtual_devices)
    if start.process.count > 1:
        join_processes(start.process)
    try:
        jax.devices()
    except AssertionError:  # the plugin is installed but finds no device
        raise RuntimeError(
            f"JAX finds no device of platform {start.platform}; check that its driver is installed (nvidia-smi shows "
            "it), or leave out --platform for CPUs"
        ) from None


def jax_platforms(platform: str) -> str:
    """Returns JAX's names of a platform; "gpu" stands for the GPU platforms whose plugins are installed.

    Raises:
        RuntimeError: no plugin for GPUs is installed.
    """
    if platform != "gpu":
        return platform
    if not (platforms := gpu_platforms()):
        raise RuntimeError(
            "JAX is installed without GPU support; pip install 'shardcall[cuda13]' for NVIDIA GPUs, or leave out "
            "--platform for CPUs"
        )
    return ",".join(platforms)


def _open_store(start: link_pb2.Start) -> ProgramStore | None:
    if not start.program_dir:
        return None
    try:
        return ProgramStore(Path(start.program_dir), start.max_program_dir_bytes, host_processor())
    except PrivateFileError as error:  # the owner has changed since the front end's check
        structlog.get_logger().warning("no compiled programs are kept on disk", reason=str(error))
        return None


def _platform() -> Platform:
    device = jax.devices()[0]
    runtime = [] if device.platform == "cpu" else [" ".join(device.client.platform_version.split())]
    return Platform(
        device_kind=device.device_kind,
        jax=" / ".join([jax.__version__, version("jaxlib"), *runtime]),
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

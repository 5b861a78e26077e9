"""The process that compiles: what can go wrong in a compiler costs the programs that it compiles, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection

import jax

from shardcall_core.call_error import CallError
from shardcall_server.compilation.disk_cache import DiskCache, Origin
from shardcall_server.compilation.keys import Platform
from shardcall_server.compilation.program import CompiledParts, compile_parts, is_out_of_memory
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.mesh.failures import compile_failed, failure_of
from shardcall_server.mesh.resolver import Resolver
from shardcall_worker.v1 import link_pb2

COMPILE_THREADS = 4  # one more than the front end lets one client use


@dataclass(frozen=True)
class CompilationJob:
    """A program to be compiled.

    Attributes:
        number: the number that its outcome names.
        command: the serialized `Prepare` command, with the strategy.
    """

    number: int
    command: bytes


@dataclass(frozen=True)
class CompilationOutcome:
    """The outcome of a job.

    Attributes:
        number: the job's.
        parts: the serialized parts of the program; empty if it was not compiled.
        failure: the error, as a failure of the link; empty if there is none.
    """

    number: int
    parts: bytes = b""
    failure: bytes = b""


def serve_jobs(connection: Connection, kernels: Mapping[str, Kernel], platform: Platform) -> None:
    """Compiles the jobs of a worker until the worker has gone.

    Args:
        connection: yields `CompilationJob` and takes `CompilationOutcome`.
        kernels: the kernels by name.
        platform: the properties of this process that are part of every key.
    """
    resolver = Resolver(kernels, platform, range(len(jax.devices())))
    resolving, sending = threading.Lock(), threading.Lock()  # a resolver is for one thread; one outcome at a time

    def run(job: CompilationJob) -> None:
        outcome = _compile(job, resolver, resolving)
        with sending:
            connection.send(outcome)

    threads = ThreadPoolExecutor(COMPILE_THREADS, thread_name_prefix="compile")
    while True:
        try:
            threads.submit(run, connection.recv())
        except (EOFError, OSError):
            return


def _compile(job: CompilationJob, resolver: Resolver, resolving: threading.Lock) -> CompilationOutcome:
    try:
        with resolving:
            resolved, _ = resolver.resolve(link_pb2.Prepare.FromString(job.command))
        parts, _ = compile_resolved(resolved)
        return CompilationOutcome(job.number, parts.serialize())
    except (Exception, SystemExit) as error:  # noqa: BLE001  # every job has an outcome
        return CompilationOutcome(job.number, failure=failure_of(error).SerializeToString())


def compile_resolved(resolved: Resolution, disk: DiskCache | None = None) -> tuple[CompiledParts, bool]:
    """Compiles a call in this process; returns the parts of its program, and whether they came from disk.

    Raises:
        CallError: it cannot be compiled.
    """
    try:
        with disk.origin_of_program() if disk else nullcontext(Origin()) as origin:
            return compile_parts(resolved, in_slices=True), origin.from_disk
    except Exception as error:
        if isinstance(error, CallError) or is_out_of_memory(error):
            raise
        raise compile_failed(resolved, error) from error

"""A process that compiles one program at a time for a worker, which a crash of the compiler does not affect."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path

import jax

from shardcall.v1 import array_pb2, kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation.keys import Platform
from shardcall_server.compilation.program import CallsPythonError, compile_parts, is_out_of_memory
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.known_answers.suite import Suite
from shardcall_server.mesh.failures import compile_failed, failure_of
from shardcall_server.mesh.known_answers import run_of
from shardcall_server.mesh.resolver import Resolver
from shardcall_worker.v1 import link_pb2

_TEST_NICENESS = 10
_TESTER_IDLE_S = 30.0
_WARM_UP_AFTER_S = 0.2  # without a job: the worker has started then
_MAX_RETAINED_BYTES = 256 << 20  # of caches and of the heap; a process that keeps more ends after its job


def serve_jobs(connection: Connection, kernels: Mapping[str, Kernel], platform: Platform, max_bytes: int) -> None:
    """Compiles the jobs of a worker until the worker has gone, or this process has grown.

    Args:
        connection: yields serialized `CompilerJob` messages, and takes a serialized `CompilationOutcome` for each.
        kernels: the kernels by name.
        platform: the properties of this process that are part of every key.
        max_bytes: the maximum bytes that the compilations may allocate.
    """
    resolver = Resolver(kernels, platform, range(len(jax.devices())))
    suite = cache(partial(Suite, kernels, platform))
    _limit_memory(max_bytes)
    with suppress(OSError):  # if the host runs out of memory, the kernel ends this process and not the worker
        Path("/proc/self/oom_score_adj").write_text("1000")
    if not connection.poll(_WARM_UP_AFTER_S):
        warm_up(kernels, platform, max_bytes)
    resident_bytes = _memory("RssAnon")
    while _memory("RssAnon") - resident_bytes < _MAX_RETAINED_BYTES:
        try:
            job = link_pb2.CompilerJob.FromString(connection.recv_bytes())
            is_test = job.HasField("known_answer")
            outcome = _test(suite(), job.known_answer.name) if is_test else _compile(job.prepare, resolver, max_bytes)
            connection.send_bytes(outcome.SerializeToString())
            if is_test and not connection.poll(_TESTER_IDLE_S):
                return
        except (EOFError, OSError):
            return


def warm_up(kernels: Mapping[str, Kernel], platform: Platform, max_bytes: int) -> link_pb2.CompilationOutcome:
    """Compiles a small program, since the first one of a process takes 0.1 s longer than later ones."""
    count = len(jax.devices())
    mesh = mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="x", size=count)])
    operand = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[2 * count])
    command = link_pb2.Prepare(call=kernel_pb2.KernelCall(kernel="diff", mesh=mesh), operands=[operand])
    return _compile(command, Resolver(kernels, platform, range(count)), max_bytes)


def _compile(command: link_pb2.Prepare, resolver: Resolver, max_bytes: int) -> link_pb2.CompilationOutcome:
    try:
        resolved, _ = resolver.resolve(command)
        try:
            parts = compile_parts(resolved, in_slices=True)
            return link_pb2.CompilationOutcome(program=parts.serialize())
        except CallsPythonError:
            return link_pb2.CompilationOutcome(calls_python=link_pb2.CallsPython())
        except CallError:
            raise
        except Exception as error:
            if not is_out_of_memory(error):
                raise compile_failed(resolved, error) from error
            raise CallError(
                Reason.COMPILE_FAILED,
                f"compiling kernel {resolved.kernel.name!r} for these shapes and specs takes more than "
                f"{max_bytes} bytes, which is --max-compiler-bytes; make the program or its constants smaller",
            ) from error
    except (Exception, SystemExit) as error:  # noqa: BLE001  # every job has an outcome
        return link_pb2.CompilationOutcome(failure=failure_of(error))


def _test(suite: Suite, name: str) -> link_pb2.CompilationOutcome:
    """Compiles and runs a known-answer test, behind other processes that need the processor."""
    try:
        for thread in os.listdir("/proc/self/task"):  # Linux has a priority for each thread
            os.setpriority(os.PRIO_PROCESS, int(thread), _TEST_NICENESS)
        return link_pb2.CompilationOutcome(known_answer=run_of(suite.known_answers[name].compile()()()))
    except (Exception, SystemExit) as error:  # noqa: BLE001  # every job has an outcome
        return link_pb2.CompilationOutcome(failure=failure_of(error))


def _limit_memory(max_bytes: int) -> None:
    """Limits what this process may allocate beyond what it has; an allocation that fails raises or ends it."""
    limit = _memory("VmData") + max_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _memory(field: str) -> int:
    """Returns a field of this process's status in bytes."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(f"{field}:"))

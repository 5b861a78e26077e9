"""A worker's compilers: in processes of their own, or in the worker where they must be."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from contextlib import closing, suppress
from multiprocessing.connection import Connection

import jax
import jax.numpy as jnp
import numpy as np

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import lock
from shardcall_server.compilation.disk_cache import DiskCache
from shardcall_server.compilation.keys import KernelKey, code_digest
from shardcall_server.compilation.program import CompiledParts
from shardcall_server.compilation.program_store import ProgramStore, StoreCounts
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.mesh.compiler_process import CompilationJob, CompilationOutcome, compile_resolved
from shardcall_server.mesh.failures import compiler_ended
from shardcall_server.mesh.forking import ForkServer
from shardcall_worker.v1 import link_pb2


class Compiler(ABC):
    """Compiles calls.

    Attributes:
        counts: the counts of the program store; None without one.
    """

    counts: StoreCounts | None = None

    @abstractmethod
    def compile(self, resolved: Resolution, key: KernelKey, command: link_pb2.Prepare) -> tuple[CompiledParts, bool]:
        """Returns the parts of a program, which the worker has loaded, and whether they came from disk.

        Args:
            resolved: the call.
            key: its key.
            command: the command that prepares it, with the strategy.

        Raises:
            CallError: it cannot be compiled.
        """


class LocalCompiler(Compiler):
    """Compiles in the worker: for several hosts, which agree on programs, and for GPUs, whose memory is not shared.

    Args:
        disk: the disk cache; None if there is none.
    """

    def __init__(self, disk: DiskCache | None) -> None:
        self._disk = disk
        self.counts = disk.store.counts if disk else None

    def compile(self, resolved: Resolution, key: KernelKey, command: link_pb2.Prepare) -> tuple[CompiledParts, bool]:
        """Compiles on this thread."""
        return compile_resolved(resolved, self._disk)


class ForkedCompiler(Compiler):
    """Compiles in a process that may crash.

    Where it ends, the programs that it compiled are compiled again, each in a process of its own, so that only the one
    that ends this, too, is refused.

    Args:
        fork_server: forks the processes.
        store: keeps the programs on disk; None if they are not kept.
    """

    def __init__(self, fork_server: ForkServer, store: ProgramStore | None) -> None:
        self._fork_server = fork_server
        self._store = store
        self._code = code_digest() if store else ""
        self.counts = store.counts if store else None
        self._lock = lock("the lock of the compilers")  # guards the process
        self._process = _CompilerProcess(fork_server)
        _register_lapack()

    def compile(self, resolved: Resolution, key: KernelKey, command: link_pb2.Prepare) -> tuple[CompiledParts, bool]:
        """Loads a program from disk, or compiles it in another process and loads it from there."""
        name = f"{self._code}\0{key.digest()}"
        if self._store and (stored := self._store.get(name)) is not None:
            try:
                return CompiledParts.deserialize(stored, resolved.device_ids), True
            except Exception:  # noqa: BLE001  # whatever the bytes are, the program is compiled
                self._store.count_unusable()
        compiled = self._compile(resolved, command.SerializeToString())
        if self._store:
            self._store.put(name, compiled)
        return CompiledParts.deserialize(compiled, resolved.device_ids), False

    def _compile(self, resolved: Resolution, data: bytes) -> bytes:
        try:
            outcome = self._shared().run(data)
        except _ProcessEndedError as ended:
            if ended.was_alone:
                raise compiler_ended(resolved) from None
            outcome = self._run_alone(resolved, data)
        if outcome.failure:
            failure = link_pb2.Failure.FromString(outcome.failure)
            raise CallError(
                Reason(failure.reason), failure.message, field=failure.field, metadata=dict(failure.metadata)
            )
        return outcome.parts

    def _run_alone(self, resolved: Resolution, data: bytes) -> CompilationOutcome:
        with closing(_CompilerProcess(self._fork_server)) as own:
            try:
                return own.run(data)
            except _ProcessEndedError:
                raise compiler_ended(resolved) from None

    def _shared(self) -> _CompilerProcess:
        with self._lock:
            if self._process.has_ended:
                self._process = _CompilerProcess(self._fork_server)
            return self._process


def _register_lapack() -> None:
    """Has JAX register LAPACK's routines with XLA, which it does when it lowers one (jax 0.10.1).

    Without it, a loaded program that calls one ends the process.
    """
    jax.jit(jnp.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float64))


class _ProcessEndedError(Exception):
    """The process ended.

    Attributes:
        was_alone: whether it compiled nothing else.
    """

    def __init__(self, *, was_alone: bool) -> None:
        super().__init__("the compiler process ended")
        self.was_alone = was_alone


class _CompilerProcess:
    """A process that compiles.

    Attributes:
        has_ended: whether it has ended.
    """

    def __init__(self, fork_server: ForkServer) -> None:
        self._socket = fork_server.fork()
        self._connection = Connection(os.dup(self._socket.fileno()))  # closed by the thread that reads it
        self._lock = threading.Lock()  # guards all of these; one job is sent at a time
        self._numbers = itertools.count()
        self._pending: dict[int, Future[CompilationOutcome]] = {}
        self.has_ended = False
        threading.Thread(target=self._read, name="compiler", daemon=True).start()

    def run(self, command: bytes) -> CompilationOutcome:
        """Waits for the outcome of a command.

        Raises:
            _ProcessEndedError: the process ended before.
        """
        outcome: Future[CompilationOutcome] = Future()
        with self._lock:
            number = next(self._numbers)
            if self.has_ended:
                raise _ProcessEndedError(was_alone=False)
            self._pending[number] = outcome
            with suppress(OSError):  # `_read` notices the end, too
                self._connection.send(CompilationJob(number, command))
        return outcome.result()

    def close(self) -> None:
        """Ends the process."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        while True:
            try:
                outcome: CompilationOutcome = self._connection.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                pending = self._pending.pop(outcome.number)
            pending.set_result(outcome)
        with self._lock:
            self.has_ended = True
            self._connection.close()
            left, self._pending = list(self._pending.values()), {}
        for future in left:
            future.set_exception(_ProcessEndedError(was_alone=len(left) == 1))

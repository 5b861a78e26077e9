"""A worker's compilers: in processes of their own, or in the worker where they must be."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation.keys import KernelKey
from shardcall_server.compilation.program import CallsPythonError, CompiledParts, compile_parts, is_out_of_memory
from shardcall_server.compilation.program_store import ProgramStore, StoreCounts
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.compile_limit import compile_limit_error
from shardcall_server.mesh.failures import compile_failed, compiler_ended
from shardcall_server.mesh.forking import ForkServer
from shardcall_worker.v1 import link_pb2

_MAX_IDLE = 2


class Compiler(ABC):
    """Compiles calls, and keeps their programs on disk.

    Args:
        store: keeps the programs; None if they are not kept.
        code: the digest of the code of all kernels, which is not part of a key.

    Attributes:
        can_end: whether `end` has an effect.
    """

    can_end = False

    def __init__(self, store: ProgramStore | None, code: str) -> None:
        self._store = store
        self._code = code

    @property
    def counts(self) -> StoreCounts | None:
        """The counts of the program store; None without one."""
        return self._store.counts if self._store else None

    def get_or_compile(
        self, resolved: Resolution, key: KernelKey, command: link_pb2.Prepare, job: int
    ) -> tuple[CompiledParts, bool]:
        """Returns the parts of a program, which this process has loaded, and whether they came from disk.

        Args:
            resolved: the call.
            key: its key.
            command: the command that prepares it, with the strategy.
            job: the number by which `end` ends the compilation.

        Raises:
            CallError: it cannot be compiled.
        """
        name = f"{self._code}\0{key.digest()}"
        if self._store and (stored := self._store.get(name)) is not None:
            try:
                return CompiledParts.deserialize(stored, resolved.device_ids), True
            except Exception:  # noqa: BLE001  # whatever the bytes are, the program is compiled
                self._store.count_unusable()
        parts, data = self.compile(resolved, command, job)
        if self._store and data is not None:
            self._store.put(name, data)
        return parts, False

    @abstractmethod
    def compile(
        self, resolved: Resolution, command: link_pb2.Prepare, job: int
    ) -> tuple[CompiledParts, bytes | None]:
        """Compiles a call; returns also the serialized program, or None if it cannot or need not be serialized."""

    def end(self, job: int) -> None:  # noqa: B027  # where `can_end` is False, there is nothing to do
        """Ends a compilation, if it is under way in a compiler process."""


class LocalCompiler(Compiler):
    """Compiles in the worker: for several hosts, which agree on programs, and for GPUs, whose memory is not shared."""

    def compile(
        self, resolved: Resolution, command: link_pb2.Prepare, job: int
    ) -> tuple[CompiledParts, bytes | None]:
        """Compiles on this thread."""
        try:
            parts = compile_parts(resolved, in_slices=True)
        except Exception as error:
            if isinstance(error, CallError) or is_out_of_memory(error):
                raise
            raise compile_failed(resolved, error) from error
        data = None
        if self._store:
            with suppress(CallsPythonError):
                data = parts.serialize()
        return parts, data


class ForkedCompiler(Compiler):
    """Compiles in processes that may crash, hang or grow; each compiles one program at a time.

    Args:
        store: as of `Compiler`.
        code: as of `Compiler`.
        fork_server: forks the processes.
        max_seconds: the maximum duration of a compilation.
    """

    can_end = True

    def __init__(self, store: ProgramStore | None, code: str, fork_server: ForkServer, max_seconds: float) -> None:
        super().__init__(store, code)
        self._fork_server = fork_server
        self._max_seconds = max_seconds
        self._local = LocalCompiler(None, code)
        self._lock = threading.Lock()  # guards both
        self._idle = [_CompilerProcess(fork_server)]  # it starts its devices while this process does
        self._running: dict[int, _CompilerProcess] = {}

    def compile(
        self, resolved: Resolution, command: link_pb2.Prepare, job: int
    ) -> tuple[CompiledParts, bytes | None]:
        """Compiles in another process and loads the program from there; in this one if the program calls Python."""
        try:
            process = self._take(job)
        except OSError:
            structlog.get_logger().exception("no compiler process could be forked; the worker compiles")
            return self._local.compile(resolved, command, job)
        outcome = None
        try:
            outcome = process.run(command, self._max_seconds)
        except TimeoutError:
            raise compile_limit_error(self._max_seconds) from None
        except (EOFError, OSError):
            if process.was_ended:
                raise CallError(Reason.CANCELLED, "nobody waited for the program") from None
            raise compiler_ended(resolved) from None
        finally:
            self._release(job, process, is_usable=outcome is not None)
        match outcome.WhichOneof("outcome"):
            case "program":
                return CompiledParts.deserialize(outcome.program, resolved.device_ids), outcome.program
            case "calls_python":
                return self._local.compile(resolved, command, job)
        failure = outcome.failure
        raise CallError(Reason(failure.reason), failure.message, field=failure.field, metadata=dict(failure.metadata))

    def end(self, job: int) -> None:
        """Kills the process that compiles the program."""
        with self._lock:
            process = self._running.get(job)
            if process is not None:
                process.was_ended = True
                process.kill()

    def _take(self, job: int) -> _CompilerProcess:
        with self._lock:
            process = None
            while self._idle and process is None:
                process = self._idle.pop()
                if process.has_ended:
                    process.close()
                    process = None
            process = self._running[job] = process or _CompilerProcess(self._fork_server)
        return process

    def _release(self, job: int, process: _CompilerProcess, *, is_usable: bool) -> None:
        with self._lock:
            del self._running[job]
            if is_usable and not process.was_ended and len(self._idle) < _MAX_IDLE:
                self._idle.append(process)
            else:
                process.close()


@dataclass
class _CompilerProcess:
    """A process that compiles.

    Attributes:
        was_ended: whether `ForkedCompiler.end` has ended it.
    """

    _fork_server: ForkServer
    was_ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._pid, served = self._fork_server.fork()
        self._connection = Connection(served.detach())

    @property
    def has_ended(self) -> bool:
        """Whether a process that compiles nothing has ended."""
        return self._connection.poll()

    def run(self, command: link_pb2.Prepare, max_seconds: float) -> link_pb2.CompilationOutcome:
        """Compiles a call.

        Raises:
            TimeoutError: it takes too long.
            EOFError: the process has ended.
            OSError: the process has ended.
        """
        self._connection.send_bytes(command.SerializeToString())
        if not self._connection.poll(max_seconds):
            raise TimeoutError
        return link_pb2.CompilationOutcome.FromString(self._connection.recv_bytes())

    def kill(self) -> None:
        """Kills the process; `run` raises an error."""
        self._fork_server.kill(self._pid)

    def close(self) -> None:
        """Kills the process and releases its connection."""
        self.kill()
        self._connection.close()

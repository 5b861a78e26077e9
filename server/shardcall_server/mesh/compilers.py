"""A worker's compilers: in processes of their own, or in the worker where they must be."""

from __future__ import annotations

import math
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation.keys import KernelKey
from shardcall_server.compilation.program import CallsPythonError, CompiledParts, compile_parts, is_out_of_memory
from shardcall_server.compilation.program_store import ProgramStore, StoreCounts
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.compile_limit import compile_limit_error
from shardcall_server.mesh.command_answer import CommandAnswer
from shardcall_server.mesh.failures import compile_failed, compiler_ended
from shardcall_server.mesh.forking import ForkServer
from shardcall_worker.v1 import known_answer_pb2, link_pb2

_MAX_IDLE = 2
_ENDED_S = 60.0
_MAX_CANCELLED = 4096
_MAX_OWNERS = 1024
_MIN_TEST_S = 55.0  # less than the watchdog's limit of a test
_CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE, -signal.SIGBUS}  # exit statuses


@dataclass(frozen=True)
class CompilationJob:
    """A program to be compiled.

    Attributes:
        resolved: the call.
        command: the command that prepares it, with the strategy.
        answer: the answer to that command, which reports the progress.
        owner: the client whose call needs the program.
    """

    resolved: Resolution
    command: link_pb2.Prepare
    answer: CommandAnswer
    owner: str = ""

    def report(self, *, in_compiler_process: bool) -> None:
        """Reports which process is at work, so that the front end knows what may have ended the worker."""
        self.answer.send(compiling=link_pb2.Compiling(in_compiler_process=in_compiler_process))


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

    def get_or_compile(self, job: CompilationJob, key: KernelKey) -> tuple[CompiledParts, bool]:
        """Returns the parts of a program, which this process has loaded, and whether they came from disk.

        Raises:
            CallError: it cannot be compiled.
        """
        job.report(in_compiler_process=False)
        name = f"{self._code}\0{key.digest()}"
        if self._store and (stored := self._store.get(name)) is not None:
            try:
                return CompiledParts.deserialize(stored, job.resolved.device_ids), True
            except Exception:  # noqa: BLE001  # whatever the bytes are, the program is compiled
                self._store.count_unusable()
        parts, data = self.compile(job)
        if self._store and data is not None:
            self._store.put(name, data)
        return parts, False

    @abstractmethod
    def compile(self, job: CompilationJob) -> tuple[CompiledParts, bytes | None]:
        """Compiles a call; returns also the serialized program, or None if it cannot or need not be serialized."""

    def test(self, name: str, kernels: Sequence[str]) -> known_answer_pb2.KnownAnswerRun | None:
        """Runs a known-answer test in a process of its own; returns None if this compiler has none.

        Args:
            name: the test's name.
            kernels: the kernels that have failed if the process ends or hangs.
        """
        return None

    def close(self) -> None:  # noqa: B027  # as `end`
        """Ends the process of known-answer tests."""

    def end(self, prepare_id: int) -> None:  # noqa: B027  # where `can_end` is False, there is nothing to do
        """Ends the compilation that the command of this id began, if a compiler process has it."""


class LocalCompiler(Compiler):
    """Compiles in the worker: for several hosts, which agree on programs, and for GPUs, whose memory is not shared."""

    def compile(self, job: CompilationJob) -> tuple[CompiledParts, bytes | None]:
        """Compiles on this thread."""
        try:
            parts = compile_parts(job.resolved, in_slices=True)
        except Exception as error:
            if isinstance(error, CallError) or is_out_of_memory(error):
                raise
            raise compile_failed(job.resolved, error) from error
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
        self._lock = threading.Lock()  # guards the following
        self._ended: dict[str, float] = {}  # when a compilation of a client last ended its process
        self._idle = [_CompilerProcess(fork_server)]  # it starts its devices while this process does
        self._running: dict[int, _CompilerProcess] = {}
        self._tester: _CompilerProcess | None = None
        self._cancelled: set[int] = set()  # that `end` named before they had a process

    def compile(self, job: CompilationJob) -> tuple[CompiledParts, bytes | None]:
        """Compiles in another process and loads the program from there; in this one if the program calls Python."""
        try:
            # A process that has compiled before may have ended for another reason than this program.
            deadline = time.monotonic() + self._max_seconds
            outcome = self._run(job, deadline) or self._run(job, deadline, in_new=True)
        except _ForkError:
            structlog.get_logger().exception("no compiler process could be forked; the worker compiles")
            job.report(in_compiler_process=False)
            return self._local.compile(job)
        finally:
            self._cancelled.discard(job.answer.call_id)
        if outcome is None:
            raise compiler_ended(job.resolved)
        match outcome.WhichOneof("outcome"):
            case "program":
                job.report(in_compiler_process=False)
                return CompiledParts.deserialize(outcome.program, job.resolved.device_ids), outcome.program
            case "calls_python":
                job.report(in_compiler_process=False)
                return self._local.compile(job)
            case "failure":
                failure = outcome.failure
            case _:
                failure = link_pb2.Failure(reason=Reason.INTERNAL.value, message="the compiler process sent no outcome")
        raise CallError(Reason(failure.reason), failure.message, field=failure.field, metadata=dict(failure.metadata))

    def test(self, name: str, kernels: Sequence[str]) -> known_answer_pb2.KnownAnswerRun | None:
        """Runs a known-answer test in a process that does nothing else.

        Kernels fail if the process crashes, also when it is repeated. A test that is slow, or whose process is killed,
        such as for lack of memory, has not run.

        Raises:
            CallError: it has not run.
        """
        job = link_pb2.CompilerJob(known_answer=known_answer_pb2.RunKnownAnswer(name=name))
        deadline = time.monotonic() + max(self._max_seconds, _MIN_TEST_S)
        for _ in range(2):
            if self._tester is not None and self._tester.has_ended:  # it was idle, or had grown
                self._tester.close()
                self._tester = None
            try:
                process = self._tester = self._tester or _CompilerProcess(self._fork_server)
                outcome = process.run(job, max(0.0, deadline - time.monotonic()))
            except _ForkError:
                return None
            except (TimeoutError, EOFError, OSError):
                self._tester = None
                if (status := process.close()) not in _CRASHES:
                    raise CallError(
                        Reason.COMPILE_FAILED, f"the process of the test was ended, or was slow (status {status})"
                    ) from None
            else:
                if outcome.HasField("failure"):
                    raise CallError(Reason(outcome.failure.reason), outcome.failure.message)
                return outcome.known_answer
        fault = f"the test ended its process by {signal.Signals(-status).name}"
        failures = [known_answer_pb2.KnownAnswerFailure(kernel=kernel, detail=fault) for kernel in kernels]
        return known_answer_pb2.KnownAnswerRun(failures=failures)

    def close(self) -> None:
        """Kills the process of known-answer tests."""
        if (tester := self._tester) is not None:
            tester.kill()

    def end(self, prepare_id: int) -> None:
        """Kills the process that compiles the program."""
        with self._lock:
            process = self._running.get(prepare_id)
            if process is None:  # not begun yet
                # Those that were compiled already will not come, and none comes before thousands of others.
                self._cancelled = {i for i in self._cancelled if i > prepare_id - _MAX_CANCELLED} | {prepare_id}
            else:
                process.was_ended = True
                process.kill()

    def _run(self, job: CompilationJob, deadline: float, *, in_new: bool = False) -> link_pb2.CompilationOutcome | None:
        """Returns the outcome of a job; None if the process ended."""
        prepare_id, outcome = job.answer.call_id, None
        with self._lock:
            if prepare_id in self._cancelled:
                raise CallError(Reason.CANCELLED, "nobody waits for the program")
            self._discard_ended()
            # Processes that have compiled before are faster. A client that ends many would leave none to the others.
            in_new = in_new or not self._idle or time.monotonic() - self._ended.get(job.owner, -math.inf) < _ENDED_S
            process = self._running[prepare_id] = _CompilerProcess(self._fork_server) if in_new else self._idle.pop()
        try:
            job.report(in_compiler_process=True)
            outcome = process.run(link_pb2.CompilerJob(prepare=job.command), max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            raise compile_limit_error(self._max_seconds) from None
        except (EOFError, OSError):
            if process.was_ended:
                raise CallError(Reason.CANCELLED, "nobody waits for the program") from None
        finally:
            self._release(job, process, is_usable=outcome is not None)
        return outcome

    def _discard_ended(self) -> None:
        """Discards the idle processes that have ended, such as those that had grown."""
        for process in [process for process in self._idle if process.has_ended]:
            self._idle.remove(process)
            process.close()

    def _release(self, job: CompilationJob, process: _CompilerProcess, *, is_usable: bool) -> None:
        with self._lock:
            del self._running[job.answer.call_id]
            if is_usable and not process.was_ended and len(self._idle) < _MAX_IDLE:
                self._idle.append(process)
                return
            process.close()
            if not is_usable or process.was_ended:
                self._ended[job.owner] = time.monotonic()
                self._ended = dict(islice(self._ended.items(), max(0, len(self._ended) - _MAX_OWNERS), None))


class _ForkError(Exception):
    """A process could not be forked."""


@dataclass(eq=False)
class _CompilerProcess:
    """A process that compiles.

    Attributes:
        was_ended: whether `ForkedCompiler.end` has ended it.
    """

    _fork_server: ForkServer
    was_ended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        try:
            self._pid, served = self._fork_server.fork()
        except OSError as error:
            raise _ForkError from error
        self._connection = Connection(served.detach())

    def run(self, job: link_pb2.CompilerJob, max_seconds: float) -> link_pb2.CompilationOutcome:
        """Performs a job.

        Raises:
            TimeoutError: it takes too long.
            EOFError: the process has ended.
            OSError: the process has ended.
        """
        self._connection.send_bytes(job.SerializeToString())
        if not self._connection.poll(max_seconds):
            raise TimeoutError
        return link_pb2.CompilationOutcome.FromString(self._connection.recv_bytes())

    @property
    def has_ended(self) -> bool:
        """True once a process that compiles nothing has ended."""
        return self._connection.poll()

    def kill(self) -> int:
        """Kills the process; `run` raises an error. Returns its exit status, that of its own end if it had ended."""
        return self._fork_server.kill(self._pid)

    def close(self) -> int:
        """Kills the process and releases its connection; returns as `kill`."""
        status = self.kill()
        self._connection.close()
        return status

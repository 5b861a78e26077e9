"""Execution of the commands of the link by a worker.

The thread that reads the link only launches. Planning has a separate thread without slow work; compilation and the wait
for results have other threads.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

import jax
import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation import analysis
from shardcall_server.compilation.keys import KernelKey, Platform, tuning_digest
from shardcall_server.compilation.program import Program, assemble
from shardcall_server.compilation.resolve import Resolution
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.known_answers.suite import Suite
from shardcall_server.link.failures import decode_failure
from shardcall_server.link.file_errors import file_error
from shardcall_server.link.framing import Frame, Link
from shardcall_server.mesh.array_files import ArrayFile, FileSource, FolderSource, UnreadableSource, write_file
from shardcall_server.mesh.arrivals import Arrival, Arrivals
from shardcall_server.mesh.command_answer import CommandAnswer
from shardcall_server.mesh.compilers import CompilationJob, Compiler
from shardcall_server.mesh.executor import Executor, Launch, may_copy_now
from shardcall_server.mesh.host_buffers import OnGathered, Source, Target
from shardcall_server.mesh.known_answers import KnownAnswerTests
from shardcall_server.mesh.loops import Loops
from shardcall_server.mesh.memory import MemoryFiles, clear_jax_caches, release_aliased, trim
from shardcall_server.mesh.placement import ParallelCopier
from shardcall_server.mesh.plans import describe_plan
from shardcall_server.mesh.profiling import Profiler, phase
from shardcall_server.mesh.resident_arrays import DeviceArray, ResidentArrays
from shardcall_server.mesh.resolver import Resolver
from shardcall_server.mesh.sizes import check_memory, check_size
from shardcall_server.mesh.trial_runner import TrialRunner
from shardcall_server.mesh.zarr_files import ZarrFolder, ZarrSource
from shardcall_worker.v1 import known_answer_pb2, link_pb2, profile_pb2

COMPILE_THREADS = 4  # one more than the front end lets one client use
_FINISH_THREADS = 8  # executions that are awaited and gathered concurrently
_FILE_THREADS = 2  # transfers between devices and disks; a slow disk delays no other command
_EVICTIONS_BETWEEN_CLEARS = 64
_COMMANDS_PER_WRITE = 16  # answers wait for the commands behind them


@dataclass(frozen=True)
class _CompiledProgram:
    program: Program
    prepared: link_pb2.Prepared


class Commands:
    """Executes commands with the compiled programs of this process.

    The front end decides which programs are evicted and sends every eviction in the order of launches, so that all
    workers of a mesh hold the same programs at every launch.

    Args:
        link: the link for answers.
        kernels: the kernels by name.
        platform: the properties of this process that are part of every key.
        compiler: compiles the programs of calls.

    Attributes:
        known_answers: the known-answer tests.
    """

    def __init__(
        self,
        link: Link,
        kernels: Mapping[str, Kernel],
        platform: Platform,
        compiler: Compiler,
    ) -> None:
        self.known_answers = KnownAnswerTests(Suite(kernels, platform), compiler.test)
        self._link = link
        self._compiler = compiler
        devices = range(len(jax.devices()))
        self._resolver = Resolver(kernels, platform, devices)
        self._sequence = 0
        self._call_id = 0  # of the command that the link's thread handles
        self._copier = ParallelCopier()
        self._memory = MemoryFiles()
        self._resident_arrays = ResidentArrays(self._copier, self._report_reading)
        self._arrivals = Arrivals(self._resident_arrays, self._copier, devices)
        self._loops = Loops(self._resident_arrays, self._copier)
        self._executor = Executor(self._memory, self._resident_arrays, self._loops, self._copier)
        self._trial_runner = TrialRunner()
        self._planner = ThreadPoolExecutor(1, thread_name_prefix="plan")
        # Several processes compile one program at a time, in the same order: on GPUs they share autotuning results,
        # and could deadlock.
        compile_threads = COMPILE_THREADS if jax.process_count() == 1 else 1
        self._compilers = ThreadPoolExecutor(compile_threads, thread_name_prefix="compile")
        self._testers = ThreadPoolExecutor(1, "known-answer") if compiler.can_end else self._compilers
        self._finishers = ThreadPoolExecutor(_FINISH_THREADS, thread_name_prefix="finish")
        self._file_threads = ThreadPoolExecutor(_FILE_THREADS, thread_name_prefix="file")
        self._profile_thread = ThreadPoolExecutor(1, thread_name_prefix="profile")  # writing files takes long
        self._profiler = Profiler(lambda: self._profile_thread.submit(self._profiler.truncate))
        self._programs: dict[str, Future[_CompiledProgram]] = {}
        # By the id of the command; the number is that of the command that began the compilation.
        self._unfinished_prepares: dict[int, tuple[int, Future[_CompiledProgram]]] = {}
        self._launched_programs: dict[str, Program] = {}
        # Each with the check whether it can be finished on this thread, and what finishes it.
        self._unfinished: list[tuple[CommandAnswer, Callable[[], bool], Callable[[], None]]] = []
        self._has_deleted = False
        self._evictions = 0

    def handle_batch(self, batch: Sequence[Frame]) -> bool:
        """Executes the commands of one read, or starts them; returns False to stop reading.

        Answers that are ready at once share writes to the link. They do not wait for commands that may take long.
        """
        reads_on = True
        for count, (body, fd) in enumerate(batch, 1):
            reads_on = reads_on and self.handle(link_pb2.FrontEndMessage.FromString(body), fd)
            if count % _COMMANDS_PER_WRITE == 0:
                self._settle()
        self._settle()
        return reads_on

    def _settle(self) -> None:
        """Finishes the launches and copies of the batch so far, on this thread if they are ready soon, and answers.

        Several launches followed by several answers are faster than alternating ones, since their code stays in the
        caches: in batches of 32, the worker's part of a call takes 58 µs instead of 74 (a bare loop: 21).
        """
        for answer, is_ready_soon, finish in self._unfinished:
            try:
                answer.more = is_ready_soon()
            except Exception:  # noqa: BLE001  # an error of this launch only, which `_finish` reports
                answer.more = True
            if answer.more:  # a thread switch would take longer than the rest
                finish()
            else:
                self._finishers.submit(finish)
        self._unfinished.clear()
        self._link.flush()
        if self._has_deleted:
            self._has_deleted = False
            release_aliased()

    def handle(self, message: link_pb2.FrontEndMessage, fd: int | None) -> bool:
        """Executes a command, or starts it; returns False to stop reading. Its answer may wait for `handle_batch`."""
        command, self._call_id = message.WhichOneof("command"), message.call_id
        if command == "shutdown" or ((sequence := message.sequence) and not self._is_next(sequence)):
            return False
        if command == "execute":
            self._execute(message)
        elif command == "get_array":
            self._get(message)
        elif command == "delete_arrays":
            # The memory of small arrays waits for JAX's next placement or launch.
            self._has_deleted |= self._resident_arrays.delete(message.delete_arrays.array_ids[:])
        elif command == "drop_loop":
            self._loops.drop(message.drop_loop.loop_id)
        else:
            self._settle()
            self._begin(command, message, fd)
        return True

    def _begin(self, command: str | None, message: link_pb2.FrontEndMessage, fd: int | None) -> None:
        match command:
            case "prepare":
                self._planner.submit(self._prepare, message)
            case "get_compiled_text":
                self._planner.submit(self._text, message.call_id, message.get_compiled_text)
            case "evict":  # after the Prepare commands that came before it; launches are before it anyway
                self._planner.submit(self._evict, message.evict.key_digest)
            case "attach_memory" | "detach_memory":
                self._map(message, fd)
            case "put_array":
                self._put(message)
            case "save_array" | "load_array" | "write_arrays" | "declare_arrays":
                self._begin_with_file(command, message)
            case "measure" | "discard_trial_blocks":
                self._run_trial(message)
            case "compile_known_answer" | "run_known_answer":
                self._check_known_answer(message)
            case "start_profile" | "stop_profile":
                self._profile_thread.submit(self._profile, message)
            case "end_compilation":
                self._planner.submit(self._end_compilation, message.end_compilation.prepare_call_id)
            case "trim":
                self._planner.submit(trim)
            case _:
                with CommandAnswer(self._link, message.call_id):
                    raise CallError(Reason.INTERNAL, "the worker received a command of an unknown kind")

    def _begin_with_file(self, command: str, message: link_pb2.FrontEndMessage) -> None:
        match command:
            case "save_array":
                self._save(message)
            case "load_array":
                self._load(message)
            case "write_arrays":
                self._write_files(message)
            case "declare_arrays":
                self._declare(message)

    def _report_reading(self, has_begun: bool) -> None:
        CommandAnswer(self._link, self._call_id).send(reading=link_pb2.Reading(has_begun=has_begun))

    def _map(self, message: link_pb2.FrontEndMessage, fd: int | None) -> None:
        attach = message.attach_memory
        if fd is not None:
            self._memory.attach(attach.memory_id, fd, attach.size_bytes)
        elif attach.HasField("failure"):
            self._memory.refuse(attach.memory_id, decode_failure(attach.failure))
        else:
            self._memory.detach(message.detach_memory.memory_id)

    def _is_next(self, sequence: int) -> bool:
        """Checks that no command is missing: without it, this process would launch other programs than the others."""
        before, self._sequence = self._sequence, sequence
        if sequence == before + 1:
            return True
        reason = f"command {sequence} came after command {before}"
        CommandAnswer(self._link, 0).send(failure=link_pb2.Failure(reason=Reason.INTERNAL.value, message=reason))
        return False

    def close(self) -> None:
        """Waits for the commands that were begun."""
        self._planner.shutdown()
        self._compilers.shutdown(cancel_futures=True)
        self._compiler.close()
        self._testers.shutdown(cancel_futures=True)
        self._finishers.shutdown()
        self._profile_thread.shutdown()  # behind the finishers, which may end a recording
        self._file_threads.shutdown()
        self._copier.close()

    def _execute(self, message: link_pb2.FrontEndMessage) -> None:
        command = message.execute
        with CommandAnswer(self._link, message.call_id) as answer:
            digest = command.key_digest
            program = self._launched_programs.get(digest)
            if command.slice.resumes:
                program = self._loops.program(command.slice.loop_id)
            elif program is None:
                program = self._launched_programs[digest] = self._programs[digest].result(timeout=0).program
            if not program.is_small:
                self._settle()
            launch = self._executor.launch(program, message)
            reports = any(launch.targets) and command.report_gathered
            on_gathered = answer.report_gathered if reports else _ignore_progress
            finish = partial(self._finish, answer, launch, on_gathered)
            self._unfinished.append((answer, launch.is_ready_soon, finish))
            if not program.is_small:
                self._settle()

    def _finish(self, answer: CommandAnswer, launch: Launch, on_gathered: OnGathered) -> None:
        with answer:
            # Filled in place (1.6 µs): a message that is assigned to a field of another is serialized and copied (2.9
            # µs).
            message = link_pb2.WorkerMessage(call_id=answer.call_id)
            self._executor.finish(launch, on_gathered, message.executed)
            answer.send_message(message)

    def _run_trial(self, message: link_pb2.FrontEndMessage) -> None:
        if message.HasField("discard_trial_blocks"):
            self._trial_runner.discard_blocks()
            return
        with CommandAnswer(self._link, message.call_id) as answer:
            program = self._programs[message.measure.key_digest].result(timeout=0).program
            answer.send(measured=self._trial_runner.run(program, message.measure))

    def _check_known_answer(self, message: link_pb2.FrontEndMessage) -> None:
        answer = CommandAnswer(self._link, message.call_id)
        if message.HasField("compile_known_answer"):
            self._testers.submit(self._compile_known_answer, answer, message.compile_known_answer.name)
            return
        with answer:
            finish = self.known_answers.launch(message.run_known_answer.name)
            self._finishers.submit(self._finish_known_answer, answer, finish)

    def _compile_known_answer(self, answer: CommandAnswer, name: str) -> None:
        with answer:
            answer.send(compiling=link_pb2.Compiling(in_compiler_process=self._compiler.can_end))
            answer.send(known_answer_compiled=self.known_answers.compile(name))

    def _finish_known_answer(
        self, answer: CommandAnswer, finish: Callable[[], known_answer_pb2.KnownAnswerRun]
    ) -> None:
        with answer:
            answer.send(known_answer_run=finish())

    def _profile(self, message: link_pb2.FrontEndMessage) -> None:
        with CommandAnswer(self._link, message.call_id) as answer:
            is_truncated = False
            if message.HasField("stop_profile"):
                is_truncated = self._profiler.stop()
            elif message.start_profile.directory:
                self._profiler.start(message.start_profile.directory)
            answer.send(profiling=profile_pb2.Profiling(is_truncated=is_truncated))

    def _put(self, message: link_pb2.FrontEndMessage) -> None:
        with CommandAnswer(self._link, message.call_id) as answer:
            put = self._arrivals.prepare(message.put_array)
            source = self._executor.source(put.type, message.put_array.data)
            self._finishers.submit(self._finish_put, answer, put, source, message)

    def _load(self, message: link_pb2.FrontEndMessage) -> None:
        command = message.load_array
        with CommandAnswer(self._link, message.call_id) as answer:
            put = self._arrivals.prepare(command.array)
            source = _file_source(put, command, self._memory.descriptor(command.memory_id))
            self._file_threads.submit(self._finish_put, answer, put, source, message)

    def _finish_put(
        self,
        answer: CommandAnswer,
        put: Arrival,
        source: Source | FileSource | ZarrSource,
        message: link_pb2.FrontEndMessage,
    ) -> None:
        with answer, phase("put", message):
            answer.send(array_put=self._arrivals.finish(put, source))

    def _save(self, message: link_pb2.FrontEndMessage) -> None:
        command = message.save_array
        with CommandAnswer(self._link, message.call_id) as answer:
            resident = self._resident_arrays.get(command.array_id)  # on this thread, as in `_get`
            fd, metadata = self._memory.descriptor(command.memory_id), command.zarr_metadata
            file = ZarrFolder(fd, metadata) if metadata else ArrayFile(fd, command.offset)
            self._file_threads.submit(self._finish_save, answer, resident, file, message)

    def _finish_save(
        self,
        answer: CommandAnswer,
        resident: DeviceArray,
        file: ArrayFile | ZarrFolder,
        message: link_pb2.FrontEndMessage,
    ) -> None:
        with answer, phase("save", message):
            began = time.monotonic()
            resident.array.block_until_ready()
            file.write(resident.array, resident.type, self._copier)
            answer.send(executed=link_pb2.Executed(gather_seconds=time.monotonic() - began))

    def _write_files(self, message: link_pb2.FrontEndMessage) -> None:
        command = message.write_arrays
        with CommandAnswer(self._link, message.call_id) as answer:
            arrays = [self._resident_arrays.get(file.array_id) for file in command.files]  # on this thread: one moment
            folder = self._memory.descriptor(command.memory_id)
            self._file_threads.submit(self._finish_write_files, answer, arrays, folder, message)

    def _finish_write_files(
        self, answer: CommandAnswer, arrays: list[DeviceArray], folder: int, message: link_pb2.FrontEndMessage
    ) -> None:
        with answer, phase("save", message):
            began = time.monotonic()
            for file, resident in zip(message.write_arrays.files, arrays, strict=True):
                resident.array.block_until_ready()
                write_file(folder, file.name, file.header, resident, self._copier)
            answer.send(executed=link_pb2.Executed(gather_seconds=time.monotonic() - began))

    def _declare(self, message: link_pb2.FrontEndMessage) -> None:
        command = message.declare_arrays
        with CommandAnswer(self._link, message.call_id) as answer:
            folder, failure = self._duplicated(command.memory_id)
            for file in command.files:
                try:
                    put = self._arrivals.prepare(file.array)
                except CallError as error:  # of this array, which is ARRAY_LOST
                    structlog.get_logger().warning("an array is not declared", reason=error.message)
                else:
                    in_folder = FolderSource(
                        put.type, folder, file.name, file.offset, tuple(file.block_checksums), file.array_name
                    )
                    self._arrivals.declare(put, UnreadableSource(failure) if failure is not None else in_folder)
            if failure is not None:  # the arrays are declared all the same: all processes read one together
                raise failure
            answer.send(array_put=link_pb2.ArrayPut())

    def _duplicated(self, memory_id: int) -> tuple[int, CallError | None]:
        """Returns a descriptor of a folder, open as long as this process runs, or why it cannot be opened."""
        try:
            return os.dup(self._memory.descriptor(memory_id)), None
        except CallError as error:
            return -1, error
        except OSError as error:
            return -1, file_error(error)

    def _get(self, message: link_pb2.FrontEndMessage) -> None:
        command = message.get_array
        with CommandAnswer(self._link, message.call_id) as answer:
            # On this thread: otherwise a later command could delete it first, in one process and not in the others.
            resident = self._resident_arrays.get(command.array_id)
            target = self._executor.target(resident.type, command.result)
            on_gathered = answer.report_gathered if command.report_gathered else _ignore_progress
            finish = partial(self._finish_get, answer, resident, target, on_gathered, message)
            self._unfinished.append((answer, partial(may_copy_now, resident, target), finish))

    def _finish_get(
        self,
        answer: CommandAnswer,
        resident: DeviceArray,
        target: Target | None,
        on_gathered: OnGathered,
        message: link_pb2.FrontEndMessage,
    ) -> None:
        with answer, phase("get", message):
            answer.send(executed=self._executor.copy_out(resident, target, on_gathered))

    def _prepare(self, message: link_pb2.FrontEndMessage) -> None:
        call_id, command = message.call_id, message.prepare
        with CommandAnswer(self._link, call_id) as answer:
            resolved, key = self._resolver.resolve(command)
            check_size(resolved.problem, command.max_call_bytes, command.max_device_bytes)
            if len(resolved.candidates) > 1 and not command.strategy:
                answer.send(candidates=_candidates(resolved, key))
                return
            digest = key.digest()
            compiled = self._programs.get(digest)
            if compiled is None:
                job = CompilationJob(resolved, command, answer, message.owner)
                compiled = self._compilers.submit(_compile, job, key, self._compiler)
                self._programs[digest] = compiled
                compiled.add_done_callback(lambda done: self._forget_failed(digest, done))
            if self._compiler.can_end:
                jobs = (job for job, program in list(self._unfinished_prepares.values()) if program is compiled)
                self._unfinished_prepares[call_id] = next(jobs, call_id), compiled
                compiled.add_done_callback(lambda _: self._unfinished_prepares.pop(call_id, None))
            tests = self.known_answers.vouching_for(resolved)
            compiled.add_done_callback(answer.settle(lambda done: {"prepared": _prepared(done, resolved, tests)}))

    def _text(self, call_id: int, command: link_pb2.GetCompiledText) -> None:
        with CommandAnswer(self._link, call_id) as answer:
            text = self._programs[command.key_digest].result(timeout=0).program.text
            cut = text.encode()[: command.max_bytes].decode(errors="ignore")
            answer.send(compiled_text=link_pb2.CompiledText(text=cut))

    def _evict(self, digest: str) -> None:
        self._programs.pop(digest, None)
        self._launched_programs.pop(digest, None)
        self._evictions += 1
        if self._evictions % _EVICTIONS_BETWEEN_CLEARS == 0:
            # JAX's caches keep the traces of evicted programs, which compiled programs do not need.
            clear_jax_caches()

    def _forget_failed(self, digest: str, done: Future[_CompiledProgram]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._programs.get(digest) is done:
            del self._programs[digest]

    def _end_compilation(self, prepare_id: int) -> None:
        """Ends the compilation of a command unless another command waits for it."""
        job, ended = self._unfinished_prepares.pop(prepare_id, (0, None))
        if ended is None or any(program is ended for _, program in list(self._unfinished_prepares.values())):
            return
        if ended.done():  # its answers are being sent, and the front end may have entered the program in its table
            return
        for digest in [digest for digest, program in self._programs.items() if program is ended]:
            del self._programs[digest]
        if not ended.cancel():
            self._compiler.end(job)


def _compile(job: CompilationJob, key: KernelKey, compiler: Compiler) -> _CompiledProgram:
    resolved = job.resolved
    began = time.monotonic()
    parts, from_disk = compiler.get_or_compile(job, key)
    program = assemble(resolved, parts)
    structlog.get_logger().log(
        logging.DEBUG if from_disk else logging.INFO,
        "compiled",
        kernel=resolved.kernel.name,
        strategy=resolved.strategy.name,
        operands=key.operands,
        seconds=round(time.monotonic() - began, 3),
        from_disk=from_disk,
        key=key.digest()[:12],
    )
    needed = analysis.memory(program.compiled)
    device_bytes = resolved.problem.mesh.device_count * (
        needed.argument_bytes + needed.output_bytes + needed.temp_bytes
    )
    check_memory(device_bytes, job.command.max_device_bytes)
    text = program.text
    plan = describe_plan(program, key, text)
    nbytes = analysis.program_bytes(program.compiled, text)
    return _CompiledProgram(
        program,
        link_pb2.Prepared(
            plan=plan,
            program_bytes=nbytes,
            device_bytes=device_bytes,
            from_disk=from_disk,
            program_store=_store_counts(compiler),
            fingerprint=program.fingerprint,
            is_sliced=program.limit is not None,
            kernels=sorted({kernel.name for kernel, _ in resolved.kernel.parts(resolved.problem)}),
        ),
    )


def _file_source(put: Arrival, command: link_pb2.LoadArray, fd: int) -> FileSource | ZarrSource:
    if command.zarr_metadata:
        return ZarrSource(put.type, ZarrFolder(fd, command.zarr_metadata))
    file = ArrayFile(fd, command.offset)
    return FileSource(put.type, file, command.is_column_major, command.is_big_endian)


def _candidates(resolved: Resolution, key: KernelKey) -> link_pb2.Candidates:
    """Returns the answer to a call whose strategy is `auto`."""
    operands, results = resolved.problem.operands, resolved.problem.results
    result_bytes = sum(result.nbytes for result in results)
    nbytes = result_bytes and result_bytes + sum(operand.nbytes for operand in operands if operand is not None)
    return link_pb2.Candidates(tuning_digest=tuning_digest(key), strategies=resolved.candidates, call_bytes=nbytes)


def _prepared(compiled: _CompiledProgram, resolved: Resolution, known_answers: Sequence[str]) -> link_pb2.Prepared:
    """Returns the answer for one of the calls that share a program; each has another strategy reason."""
    prepared = link_pb2.Prepared(known_answers=known_answers)
    prepared.MergeFrom(compiled.prepared)
    prepared.plan.strategy_reason = resolved.reason
    return prepared


def _store_counts(compiler: Compiler) -> link_pb2.ProgramStoreCounts | None:
    return link_pb2.ProgramStoreCounts(**asdict(compiler.counts)) if compiler.counts else None


def _ignore_progress(byte_count: int) -> None:
    pass

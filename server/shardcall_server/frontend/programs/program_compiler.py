"""Single-flight compilation of the calls that are not in the program table."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from shardcall.v1 import array_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import check_held
from shardcall_server.frontend.programs.cache_entry import HIT, CachedProgram, CacheEntry, explain_miss, program_of
from shardcall_server.frontend.programs.compilation_queue import CompilationQueue
from shardcall_server.frontend.programs.counts import ProgramCounts
from shardcall_server.frontend.programs.keys import AbstractCall, CallKey, ProgramKey
from shardcall_server.frontend.programs.program_table import ProgramLimits, ProgramTable
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.workers.isolation import IsolatedError
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.link.wire import decode_operand_types
from shardcall_worker.v1 import link_pb2

_MAX_COMPILATIONS = 64  # they continue when their callers have left
_MAX_COMPILATIONS_PER_CLIENT = 48
_PROGRAM = "graph"  # the kernel of traced and recorded programs
_MAX_EARLIER, _MAX_SHOWN = 3, 16  # programs, and operands of each, that the progress of a compilation names
_UNAVAILABLE = {Reason.OUT_OF_DEVICE_MEMORY: "does not fit in memory", Reason.COMPILE_FAILED: "cannot be compiled"}


def _texts(operands: Iterable[array_pb2.ArrayType]) -> list[str]:
    return ["absent" if one is None else str(one) for one in decode_operand_types([*operands])]


def _without_sizes(texts: Iterable[str]) -> list[tuple[str, int]]:
    """Returns the element type and the number of axes of each operand."""
    return [(text.partition("[")[0], text.count(",") + (not text.endswith("[]"))) for text in texts]


@dataclass(eq=False)
class Compilation:
    """A compilation under way.

    Attributes:
        command: the command, with the strategy that is being compiled.
        owner: the client that it counts for, one of those whose calls wait for it; empty for the server itself.
        connection: the connection of that client's call.
        weight: the weight of the client.
        deadline: 0 for all: those of a connection begin in the order in which they came.
        key: the call that waits for it; None for a trial's, whose program is pinned.
        future: its result.
        waiter_count: the number of calls that wait for it.
        prepare_id: the id of the last command; 0 if there is none.
        was_ended: whether the worker was to end it since nobody waited.
        answer: the answer to the last command; None before the first. If the command was not sent, since a program
            runs alone, it is set to None when the command may be tried again.
        evicted: the programs evicted since the command was sent.
        candidates: the strategies that serve the call; None if the call names one, or there is only one.
        untried: the candidates that remain if the present one is refused.
        refusals: the candidates that were refused, and the reasons.
        began_s: its start on the monotonic clock.
        sent_s: the time of its first command, likewise; 0 while it waits for others.
    """

    command: link_pb2.Prepare
    owner: str = ""
    connection: str = ""
    weight: int = 1
    deadline: float = 0.0
    key: CallKey | None = None
    future: Future[CacheEntry] = field(default_factory=Future)
    waiter_count: int = 1
    prepare_id: int = 0
    was_ended: bool = False
    answer: Promise[link_pb2.WorkerMessage] | Promise[None] | None = None
    evicted: set[ProgramKey] = field(default_factory=set)
    candidates: link_pb2.Candidates | None = None
    untried: list[str] = field(default_factory=list)
    refusals: list[tuple[str, CallError]] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    sent_s: float = 0.0

    def start_with(self, candidates: link_pb2.Candidates, strategy: str) -> None:
        """Compiles one of several candidates."""
        self.candidates, self.command.strategy = candidates, strategy
        self.untried = [name for name in candidates.strategies if name != strategy]

    def refuse(self, error: CallError) -> None:
        """Continues with the next candidate.

        Raises:
            CallError: no candidate is left, or the error does not depend on the strategy.
        """
        if error.reason not in _UNAVAILABLE:
            raise error
        self.refusals.append((self.command.strategy, error))
        if not self.untried:
            raise self.refusals[0][1]
        self.command.strategy = self.untried.pop(0)


class StrategyPolicy:
    """Chooses among the candidates for the strategy "auto": here, as the kernels' rules do."""

    def select(self, candidates: link_pb2.Candidates) -> str:
        """Returns the candidate to be compiled first."""
        return candidates.strategies[0]

    def admit(self, compilation: Compilation, entry: CacheEntry) -> CacheEntry:
        """Returns the entry for a call whose first candidate has been compiled; the thread holds the launch lock."""
        return entry


class ProgramCompiler:
    """Compiles each call once, however many ask for it.

    Eviction commands are sent in the order of launches; so a program that is in the table and not evicted when its
    execution is sent is on the mesh when the execution arrives.

    Args:
        session: the mesh that compiles and holds the programs.
        limits: bounds of its programs.
        counts: counts compilations, loads and evictions.

    Attributes:
        table: the programs that the mesh holds.
        policy: chooses among the candidates for "auto".
    """

    def __init__(self, session: MeshSession, limits: ProgramLimits, counts: ProgramCounts) -> None:
        self.session = session
        self.table = ProgramTable(limits, self._on_evict, session.launch_lock)
        self.policy = StrategyPolicy()
        self._limits = limits
        self._counts = counts
        self._compilations: set[Compilation] = set()
        self._queue: CompilationQueue[Compilation] = CompilationQueue()

    def get_or_compile(
        self, call: AbstractCall, owner: str = "", connection: str = "", weight: int = 1
    ) -> CacheEntry | Future[CacheEntry]:
        """Returns the entry of a call, or the future of it; a caller that stops waiting calls `leave`.

        Args:
            owner: the client that a compilation counts for; empty for the server's own.
            connection: the connection of the call.
            weight: the weight of the client.

        Raises:
            SessionEndedError: the mesh is gone.
            CallError: too many programs are being compiled.
        """
        failure: Exception | None = None
        with self.session.launch_lock:
            entry = self.table.get(call.key)
            if entry is not None:
                return entry
            compilation = self._present_compilation(call.key)
            if compilation is None:
                compilation = Compilation(self._command(call), owner, connection, weight, key=call.key)
                has_begun = self._start(compilation)
            else:
                compilation.waiter_count += 1
                has_begun = self._queue.move(compilation, owner, connection, weight)
                if has_begun:
                    failure = self._try_first(compilation)
        if failure is not None:
            compilation.future.set_exception(failure)  # for those that waited for it already, too
            self._begin_following(compilation)
        elif has_begun:
            self._follow(compilation)
        return compilation.future

    def _present_compilation(self, key: CallKey) -> Compilation | None:
        check_held(self.session.launch_lock)
        for compilation in self._compilations:
            if compilation.key == key and not compilation.was_ended:
                return compilation
        return None

    def _command(self, call: AbstractCall) -> link_pb2.Prepare:
        return link_pb2.Prepare(
            call=call.call,
            operands=call.operands,
            max_call_bytes=0 if call.has_resident_arrays else self._limits.max_call_bytes,
            max_device_bytes=self._limits.max_device_bytes,
        )

    def position(self, future: Future[CacheEntry]) -> tuple[int, float]:
        """Returns the position of a compilation in the queue, 0 if it has begun, and the time of its last step.

        Args:
            future: its result.
        """
        with self.session.launch_lock:
            for compilation in self._compilations:
                if compilation.future is future:
                    return self._queue.position(compilation), compilation.sent_s or compilation.began_s
        return 0, time.monotonic()

    def operands(self, future: Future[CacheEntry], owner: str) -> tuple[str, list[str]]:
        """Returns the operands' types of a compilation, and earlier ones that differ from them in sizes alone.

        The latter are those of a client's last programs of the same kernel. Traced and recorded programs have none, as
        they are of one kernel without computing the same.

        Args:
            future: its result.
            owner: the client.
        """
        with self.session.launch_lock:
            compilation = next((one for one in self._compilations if one.future is future), None)
            if compilation is None:
                return "", []
            types, kernel = _texts(compilation.command.operands), compilation.command.call.kernel
            earlier = [
                [value for label, value in program.parts.items() if label.startswith("operands[")]
                for program in self.table  # the most recent first
                if (program.kernel, program.owner) == (kernel, owner) and kernel != _PROGRAM
            ]
        other_sizes = [other for other in earlier if other != types and _without_sizes(other) == _without_sizes(types)]
        return ", ".join(types[:_MAX_SHOWN]), [*dict.fromkeys(map(", ".join, other_sizes))][:_MAX_EARLIER][::-1]

    def leave(self, future: Future[CacheEntry]) -> None:
        """Ends the wait of a caller.

        A compilation that nobody waits for is dropped if it has not begun; otherwise it goes on, for a caller that
        repeats the call, until another compilation begins or waits.
        """
        with self.session.launch_lock:
            left = next((compilation for compilation in self._compilations if compilation.future is future), None)
            if left is None:
                return
            left.waiter_count -= 1
            if left.waiter_count:
                return
            if not self._queue.remove(left):
                if len(self._compilations) > 1:
                    self._end(left)
                return
            self._compilations.discard(left)
        left.future.set_exception(CallError(Reason.CANCELLED, "nobody waits for the program"))

    def compile_candidate(self, of: Compilation, strategy: str) -> Future[CacheEntry]:
        """Compiles a call with a given strategy and pins the program; raises as `get_or_compile`."""
        command = link_pb2.Prepare()
        command.CopyFrom(of.command)
        command.strategy = strategy
        compilation = Compilation(command)
        with self.session.launch_lock:
            has_begun = self._start(compilation)
        if has_begun:
            self._follow(compilation)
        return compilation.future

    def _start(self, compilation: Compilation) -> bool:
        """Sends the first command, and returns True, after which `_follow` comes next.

        Returns False if too many others are under way, of all clients, of its own or of its connection; it begins after
        one of them.
        """
        check_held(self.session.launch_lock)
        for unwanted in [other for other in self._compilations if not other.waiter_count]:
            self._end(unwanted)
        self._check_limits(compilation.owner)
        self._compilations.add(compilation)
        if not self._queue.add(compilation):
            return False
        try:
            self._send_first(compilation)
        except BaseException:
            self._queue.withdraw(compilation)
            raise
        return True

    def _send_first(self, compilation: Compilation) -> None:
        check_held(self.session.launch_lock)
        self._send(compilation)
        compilation.sent_s = time.monotonic()
        compilation.future.add_done_callback(lambda _: self._begin_following(compilation))

    def _try_first(self, compilation: Compilation) -> Exception | None:
        """Sends the first command of a compilation that waited; returns the error if that fails."""
        try:
            self._send_first(compilation)
        except Exception as error:  # noqa: BLE001  # whatever it is, no caller may wait forever
            return error
        return None

    def _begin_following(self, ended: Compilation) -> None:
        """Begins the compilation that waited for the end of another."""
        while True:
            with self.session.launch_lock:
                following = self._queue.finish(ended)
                if following is None:
                    return
                failure = self._try_first(following)
            if failure is None:
                self._follow(following)
                return
            following.future.set_exception(failure)
            ended = following

    def _end(self, compilation: Compilation) -> None:
        """Has the worker end a compilation; its answer comes soon if the worker can, and is ignored in any case."""
        check_held(self.session.launch_lock)
        if compilation.was_ended or compilation.answer is None or compilation.answer.done():
            return
        compilation.was_ended = True
        if compilation.prepare_id:
            command = link_pb2.EndCompilation(prepare_call_id=compilation.prepare_id)
            self.session.notify(link_pb2.FrontEndMessage(end_compilation=command))

    def _check_limits(self, owner: str) -> None:
        owner_count = sum(compilation.owner == owner for compilation in self._compilations) if owner else 0
        for reason, count, limit, what in (
            (Reason.SERVER_BUSY, len(self._compilations), _MAX_COMPILATIONS, "programs"),
            (Reason.QUOTA_EXCEEDED, owner_count, _MAX_COMPILATIONS_PER_CLIENT, "programs for this client"),
        ):
            if count >= limit:
                raise CallError(
                    reason,
                    f"the mesh compiles {limit} {what} already; repeat the call when some are done",
                    metadata={"limit": "programs being compiled", "allowed": str(limit)},
                )

    def _send(self, compilation: Compilation) -> None:
        try:
            message = link_pb2.FrontEndMessage(prepare=compilation.command)
            compilation.answer = self.session.command(message, owner=compilation.owner)
            compilation.prepare_id = message.call_id
        except IsolatedError as isolated:
            compilation.answer = isolated.changed
            compilation.prepare_id = 0
        except BaseException:
            self._compilations.discard(compilation)
            raise

    def _follow(self, compilation: Compilation) -> None:
        """Continues when the answer has come, possibly at once, so the launch lock must not be held."""
        assert compilation.answer is not None
        compilation.answer.add_done_callback(lambda done: self._on_answer(compilation, done))

    def _on_answer(self, compilation: Compilation, answer: Promise[link_pb2.WorkerMessage] | Promise[None]) -> None:
        try:
            with self.session.launch_lock:
                entry = self._advance(compilation, answer)
        except Exception as error:  # noqa: BLE001  # whatever it is, no caller may wait forever
            compilation.future.set_exception(error)
        else:
            if entry is not None:
                compilation.future.set_result(entry)
            else:
                self._follow(compilation)
        finally:
            if compilation.future.done():
                with self.session.launch_lock:
                    self._compilations.discard(compilation)

    def _advance(
        self, compilation: Compilation, answer: Promise[link_pb2.WorkerMessage] | Promise[None]
    ) -> CacheEntry | None:
        """Returns the entry that an answer leads to; None if the mesh is asked again."""
        check_held(self.session.launch_lock)
        try:
            message = answer.result()
        except CallError as error:
            if compilation.was_ended:
                raise
            compilation.refuse(error)
            self._send(compilation)
            return None
        if compilation.was_ended:
            if message is not None and message.HasField("prepared") and not self._is_repeated(compilation):
                self._evict_unknown(ProgramKey(message.prepared.plan.key_digest))
            raise CallError(Reason.CANCELLED, "nobody waits for the program")
        if message is None:
            self._send(compilation)
            return None
        if message.WhichOneof("answer") == "candidates":
            compilation.start_with(message.candidates, self.policy.select(message.candidates))
            self._send(compilation)
            return None
        if message.prepared.plan.key_digest in compilation.evicted:
            # The worker prepared the program before it read the eviction.
            compilation.evicted.clear()
            self._send(compilation)
            return None
        if compilation.refusals:
            names = (f"{name} {_UNAVAILABLE[error.reason]}" for name, error in compilation.refusals)
            message.prepared.plan.strategy_reason = ", and ".join(names)
        entry = self._add(message.prepared, compilation.owner, time.monotonic() - compilation.sent_s)
        if compilation.key is None:
            self.table.pin(entry.program)
            return entry
        if compilation.candidates is not None and not compilation.refusals:
            entry = self.policy.admit(compilation, entry)
        self.table.alias(compilation.key, entry)
        return entry

    def _add(self, prepared: link_pb2.Prepared, owner: str, compile_s: float) -> CacheEntry:
        if prepared.HasField("program_store"):
            self._counts.disk.update(self.session.epoch, prepared.program_store)
        program, answer = self.table.get_program(ProgramKey(prepared.plan.key_digest)), HIT
        if program is None:
            program = program_of(prepared, owner, compile_s)
            # Compared with programs of the same client: other clients' calls are not disclosed.
            answer = explain_miss(program, [other for other in self.table if other.owner == owner])
            answer.from_disk = prepared.from_disk
            self._counts.add(from_disk=prepared.from_disk)
        self.table.add(program)
        return CacheEntry(program, prepared.plan, answer)

    def _on_evict(self, program: CachedProgram) -> None:
        self._counts.evicted += 1
        self._evict(program.key)

    def _is_repeated(self, ended: Compilation) -> bool:
        """Returns whether a later command for the same program, which keeps it, has been sent."""
        return any(
            other.prepare_id and not other.was_ended and other.command == ended.command for other in self._compilations
        )

    def _evict_unknown(self, key: ProgramKey) -> None:
        """Evicts a program that the worker had prepared before it was to end the compilation."""
        if self.table.get_program(key) is None:
            self._evict(key)

    def _evict(self, key: ProgramKey) -> None:
        check_held(self.session.launch_lock)
        for compilation in self._compilations:
            compilation.evicted.add(key)
        self.session.notify(link_pb2.FrontEndMessage(evict=link_pb2.Evict(key_digest=key)))

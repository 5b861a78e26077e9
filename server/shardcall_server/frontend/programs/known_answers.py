"""Runs known-answer tests on the mesh, and refuses programs whose tests fail."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from functools import partial

import structlog

from shardcall.v1 import server_info_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.locks import check_held
from shardcall_server.frontend.memory.leases import ResidentArray, UntestedKernel
from shardcall_server.frontend.programs.cache_entry import CachedProgram
from shardcall_server.frontend.programs.task_thread import TaskThread
from shardcall_server.frontend.programs.verdicts import Verdict, Verdicts
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.command import known_answer_key
from shardcall_server.frontend.workers.isolation import IsolatedError
from shardcall_server.frontend.workers.session import QUIET_S, MeshSession, SessionEndedError
from shardcall_worker.v1 import known_answer_pb2, link_pb2

_LATEST_S = 60.0  # after its first use a kernel is tested, even if the mesh is busy
_REST = 9  # pause after a test, in its durations, unless its kernels are in use: tests take a tenth of the time at most
_MAX_NAMED = 100  # calls of untested kernels that the log names if the test fails
_POLL_S = 0.25
_MAX_ATTEMPTS = 3  # to run one test; then it has no verdict
_MAX_SUSPECTED = 3  # times that the mesh ended while a test and other programs were under way


@dataclass(eq=False)
class _Test:
    """A test of the present mesh.

    Attributes:
        name: its name.
        kernels: the kernels that it vouches for.
        digest: the key of its verdict.
        verdict: its outcome, once it has run.
        used_at_s: the moment of the first call of a program that it vouches for; infinite before.
        is_awaited: whether a call waits for it.
        calls: the number of calls of each kernel before the verdict.
        callers: the last of these calls: the kernel, the id and the owner.
        attempts: the number of runs without a verdict.
        suspected: the number of times that the mesh ended while it and other programs were running.
    """

    name: str
    kernels: tuple[str, ...]
    digest: str
    verdict: Future[Verdict] = field(default_factory=Future)
    used_at_s: float = math.inf
    is_awaited: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    callers: deque[tuple[str, str, str]] = field(default_factory=partial(deque, maxlen=_MAX_NAMED))
    attempts: int = 0
    suspected: int = 0

    def kernels_of(self, program: CachedProgram) -> list[str]:
        """Returns the kernels of a program that the test vouches for."""
        return [kernel for kernel in _kernels_in(program) if kernel in self.kernels]

    @property
    def pending(self) -> Verdict:
        """The verdict of a test that has not run, or cannot."""
        return Verdict(self.name, {}, self.kernels)


class KnownAnswerRunner(TaskThread[tuple[MeshSession, _Test]]):
    """Runs the tests of the present mesh one after the other, those of kernels in use first.

    A verdict holds for every mesh with the same digest: after a restart of the mesh no test runs again.

    Args:
        verdicts: the verdicts of earlier tests.
        is_strict: True if calls wait for the tests of their kernels.
    """

    def __init__(self, verdicts: Verdicts, *, is_strict: bool = False) -> None:
        super().__init__("known-answers", _POLL_S)
        self._verdicts = verdicts
        self._is_strict = is_strict
        self._tests: dict[str, _Test] = {}
        self._session: MeshSession | None = None
        self._jaxlib = ""
        self._test_call_id = -1
        self._next_test_at_s = 0.0
        self._thread.start()

    def begin(self, session: MeshSession) -> None:
        """Continues with a new mesh, which is ready."""
        ready = session.ready.result()
        with self._changed:
            self._session, self._jaxlib, self._test_call_id = session, ready.versions.jaxlib, -1
            before, self._tests = self._tests, {}
            for test in ready.known_answers:
                self._tests[test.name] = self._test(test, before.get(test.name))
            self._changed.notify()
        for name, earlier in before.items():
            if self._tests.get(name) is not earlier:  # calls may wait for it
                self._settle(earlier, earlier.pending)

    def _test(self, message: known_answer_pb2.KnownAnswer, before: _Test | None) -> _Test:
        digest = message.digest.hex()
        if before is not None and before.digest == digest:
            return before
        test = _Test(message.name, tuple(message.kernels), digest)
        if (verdict := self._verdicts.get(digest)) is not None:
            test.verdict.set_result(verdict)
            self._report(verdict)
        return test

    async def require(self, call: ServerCall, program: CachedProgram) -> None:
        """Has the tests run that vouch for a program; waits for them if the server is strict.

        Raises:
            CallError: KERNEL_FAILED_KNOWN_ANSWERS; or the call's deadline passed, or its caller left.
        """
        if program.trusted:
            return
        for name in program.known_answers:
            while (test := self._tests.get(name)) is not None and not test.verdict.done():
                with self._changed:
                    test.used_at_s = min(test.used_at_s, time.monotonic())
                    test.is_awaited = self._is_strict
                    self._changed.notify()
                if not self._is_strict:
                    break
                with call.phase("queue"):
                    await call.wait(test.verdict, f"waiting for the known-answer test {test.name!r}")
        self.check(program)
        for test in self._pending_of(program):
            for kernel in test.kernels_of(program):
                test.calls[kernel] += 1
                test.callers.append((kernel, call.request_id, call.owner))

    def check(self, program: CachedProgram) -> None:
        """Refuses a program of which a kernel is known to fail a test.

        Raises:
            CallError: KERNEL_FAILED_KNOWN_ANSWERS.
        """
        if program.trusted:
            return
        pending = self._pending_of(program)  # before the loop, during which a test may fail
        for name in program.known_answers:
            test = self._tests.get(name)
            if test is None or not test.verdict.done():
                continue
            failures = test.verdict.result().failures
            for kernel in _kernels_in(program):
                if (detail := failures.get(kernel)) is not None:
                    raise _refusal(kernel, name, detail, self._jaxlib)
        program.trusted = not pending

    def check_array(self, resident: ResidentArray, field: str) -> None:
        """Refuses an array of which a kernel that computed it has failed a test since.

        Raises:
            CallError: KERNEL_FAILED_KNOWN_ANSWERS.
        """
        if resident.untested and (suspect := self.suspicion(resident)):
            raise CallError(
                Reason.KERNEL_FAILED_KNOWN_ANSWERS,
                f"{field}: the array was computed by {suspect}, before that test had run; its values may be wrong, and "
                "it can be neither read nor used; delete it, and compute it again on a server with another jaxlib",
                field=field,
            )

    def untested(self, program: CachedProgram, operands: Iterable[ResidentArray]) -> tuple[UntestedKernel, ...]:
        """Returns the kernels that the results of a program depend on and that have not passed their tests.

        Args:
            operands: its operands on the mesh.
        """
        kernels = {kernel for operand in operands for kernel in operand.untested}
        for test in () if program.trusted else map(self._tests.get, program.known_answers):
            if test is not None:
                kernels.update(UntestedKernel(test.digest, kernel) for kernel in test.kernels_of(program))
        return tuple(kernel for kernel in kernels if not self._has_passed(kernel))

    def suspicion(self, resident: ResidentArray) -> str:
        """Returns the kernel by which an array may have wrong values, and the test that it failed; empty if none."""
        for untested in resident.untested:
            if (verdict := self._verdict(untested.digest)) is not None and untested.kernel in verdict.failures:
                detail = verdict.failures[untested.kernel]
                return (
                    f"kernel {untested.kernel!r}, which failed the known-answer test {verdict.known_answer!r}: {detail}"
                )
        return ""

    def _has_passed(self, untested: UntestedKernel) -> bool:
        verdict = self._verdict(untested.digest)
        return verdict is not None and untested.kernel not in verdict.failures

    def _verdict(self, digest: str) -> Verdict | None:
        test = next((test for test in list(self._tests.values()) if test.digest == digest), None)
        return test.verdict.result() if test is not None and test.verdict.done() else self._verdicts.get(digest)

    def _pending_of(self, program: CachedProgram) -> list[_Test]:
        tests = (self._tests.get(name) for name in program.known_answers)
        return [test for test in tests if test is not None and not test.verdict.done()]

    def state(self) -> server_info_service_pb2.KnownAnswers:
        """Returns the verdicts of the present mesh's tests."""
        state = server_info_service_pb2.KnownAnswers()
        for test in list(self._tests.values()):
            verdict = test.verdict.result() if test.verdict.done() else test.pending
            for kernel, detail in verdict.failures.items():
                calls = test.calls[kernel]
                state.failures.add(kernel=kernel, known_answer=test.name, detail=detail, calls=calls)
            if not verdict.failures:
                state.pending += bool(verdict.untested)
                state.passed += not verdict.untested
        return state

    def _perform(self, task: tuple[MeshSession, _Test]) -> None:
        began_s = time.monotonic()
        try:
            self._try(*task)
        except Exception:  # noqa: BLE001  # the next test is run nevertheless
            structlog.get_logger().exception("a known-answer test could not be run", known_answer=task[1].name)
            self._give_up_if_hopeless(task[1])
        finished_s = time.monotonic()
        self._next_test_at_s = finished_s + _REST * (finished_s - began_s)

    def _pending(self) -> list[_Test]:
        return [test for test in self._tests.values() if not test.verdict.done()]

    def _has_tasks(self) -> bool:
        check_held(self._lock)
        return bool(self._pending())

    def _pop(self) -> tuple[MeshSession, _Test] | None:
        check_held(self._lock)
        pending, session = self._pending(), self._session
        if session is None or not pending or session.ended:
            return None
        # Those that calls wait for, those of kernels in use, and the others; equal ones in their order.
        first = min(pending, key=lambda test: (not test.is_awaited, test.used_at_s))
        return (session, first) if self._is_due(session, first) else None

    def _is_due(self, session: MeshSession, test: _Test) -> bool:
        """Returns whether a call waits for the test, or the mesh is idle and the last test is long enough ago."""
        now = time.monotonic()
        if test.is_awaited or now >= test.used_at_s + _LATEST_S:
            return True
        is_used = test.used_at_s < math.inf
        if not session.idle or (now < self._next_test_at_s and not is_used):
            return False
        return session.newest_call_id == self._test_call_id or session.idle_s >= QUIET_S

    def _ask(self, session: MeshSession, test: _Test, message: link_pb2.FrontEndMessage) -> link_pb2.WorkerMessage:
        while True:
            try:
                answer = session.command(message)
                break
            except IsolatedError as isolated:
                isolated.changed.result()
        self._test_call_id = -1 if test.is_awaited else message.call_id
        return answer.result()

    def _try(self, session: MeshSession, test: _Test) -> None:
        """Runs a test once; it stays without a verdict if it cannot run."""
        test.attempts += 1
        if (verdict := self._verdicts.get_shared(test.digest)) is not None:  # another server's
            self._settle(test, verdict)
            return
        try:
            compilation = known_answer_pb2.CompileKnownAnswer(name=test.name)
            self._ask(session, test, link_pb2.FrontEndMessage(compile_known_answer=compilation))
            run = known_answer_pb2.RunKnownAnswer(name=test.name)
            answer = self._ask(session, test, link_pb2.FrontEndMessage(run_known_answer=run))
        except SessionEndedError:
            test.attempts -= 1  # the next mesh has it
        except CallError as error:
            if not session.is_shut_down:
                self._count_failure(session, test, error)
        else:
            ran = answer.known_answer_run
            failures = {failure.kernel: failure.detail for failure in ran.failures}
            self._keep(test, Verdict(test.name, failures, tuple(ran.untested)))

    def _count_failure(self, session: MeshSession, test: _Test, error: CallError) -> None:
        """Counts an end of the mesh against a test that was running, if the test may be the reason."""
        suspected = session.exit_reason.suspected_keys if session.exit_reason is not None else ()
        key = known_answer_key(test.name)
        test.suspected += key in suspected
        if suspected == (key,) or test.suspected >= _MAX_SUSPECTED:
            self._keep(test, Verdict(test.name, dict.fromkeys(test.kernels, "the test ended the mesh")))
            return
        structlog.get_logger().info("a known-answer test was not run", known_answer=test.name, reason=error.message)
        self._give_up_if_hopeless(test)

    def _give_up_if_hopeless(self, test: _Test) -> None:
        if test.attempts >= _MAX_ATTEMPTS and not test.verdict.done():
            structlog.get_logger().warning("a known-answer test cannot be run", known_answer=test.name)
            self._settle(test, test.pending)

    def _keep(self, test: _Test, verdict: Verdict) -> None:
        if not verdict.untested:
            self._verdicts.put(test.digest, verdict)
        self._settle(test, verdict)

    def _settle(self, test: _Test, verdict: Verdict) -> None:
        try:
            test.verdict.set_result(verdict)
        except InvalidStateError:  # it was settled when a mesh came that does not have it
            return
        self._report(verdict, test)
        if all(other.verdict.done() for other in list(self._tests.values())):
            state = self.state()
            structlog.get_logger().info(
                "known-answer tests done", passed=state.passed, failed=len(state.failures), pending=state.pending
            )

    def _report(self, verdict: Verdict, test: _Test | None = None) -> None:
        for kernel, detail in verdict.failures.items():
            callers = [
                f"{call_id} of {owner}" for name, call_id, owner in (test.callers if test else ()) if name == kernel
            ]
            structlog.get_logger().error(
                "a kernel failed a known-answer test and is refused; install another version of jaxlib, or remove "
                "compiler flags",
                kernel=kernel,
                known_answer=verdict.known_answer,
                detail=detail,
                jaxlib=self._jaxlib,
                calls_before=test.calls[kernel] if test else 0,
                last_calls_before=callers,
            )


def _kernels_in(program: CachedProgram) -> tuple[str, ...]:
    return program.kernels or (program.kernel,)


def _refusal(kernel: str, known_answer: str, detail: str, jaxlib: str) -> CallError:
    return CallError(
        Reason.KERNEL_FAILED_KNOWN_ANSWERS,
        f"kernel {kernel!r} failed the known-answer test {known_answer!r} on this server's jaxlib {jaxlib}: "
        f"{shorten(detail)}; it would return wrong numbers and is not run; have the server's administrator install "
        "another version of jaxlib, or remove the compiler flags set in XLA_FLAGS",
        metadata={"known_answer": known_answer, "detail": detail, "jaxlib": jaxlib},
    )

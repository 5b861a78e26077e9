"""Runs known-answer tests on the mesh, and refuses programs whose tests fail."""

from __future__ import annotations

import time
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

import structlog

from shardcall.v1 import server_info_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.locks import check_held
from shardcall_server.frontend.programs.cache_entry import CachedProgram
from shardcall_server.frontend.programs.task_thread import TaskThread
from shardcall_server.frontend.programs.verdicts import Verdict, Verdicts
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.command import known_answer_key
from shardcall_server.frontend.workers.isolation import IsolatedError
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_worker.v1 import known_answer_pb2, link_pb2

_QUIET_S = 1.0  # the idle time of the mesh before a test that no call waits for
_REST = 9  # pause after a test, in its durations, unless a call waits: tests take a tenth of the time at most
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
        is_awaited: whether a call waits for it.
        attempts: the number of runs without a verdict.
        suspected: the number of times that the mesh ended while it and other programs were running.
    """

    name: str
    kernels: tuple[str, ...]
    digest: str
    verdict: Future[Verdict] = field(default_factory=Future)
    is_awaited: bool = False
    attempts: int = 0
    suspected: int = 0

    @property
    def pending(self) -> Verdict:
        """The verdict of a test that has not run, or cannot."""
        return Verdict(self.name, {}, self.kernels)


class KnownAnswerRunner(TaskThread[tuple[MeshSession, _Test]]):
    """Runs the tests of the present mesh one after the other: while it is idle, or when a call waits for one.

    A verdict holds for every mesh with the same digest: after a restart of the mesh no test runs again.

    Args:
        verdicts: the verdicts of earlier tests.
    """

    def __init__(self, verdicts: Verdicts) -> None:
        super().__init__("known-answers", _POLL_S)
        self._verdicts = verdicts
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
        """Waits until the tests that vouch for a program have run.

        Raises:
            CallError: KERNEL_FAILED_KNOWN_ANSWERS; or the call's deadline passed, or its caller left.
        """
        if program.trusted:
            return
        for name in program.known_answers:
            while (test := self._tests.get(name)) is not None and not test.verdict.done():
                with self._changed:
                    test.is_awaited = True
                    self._changed.notify()
                with call.phase("queue"):
                    await call.wait(test.verdict, f"waiting for the known-answer test {name!r}")
        self.check(program)
        program.trusted = True

    def check(self, program: CachedProgram) -> None:
        """Refuses a program of which a kernel is known to fail a test.

        Raises:
            CallError: KERNEL_FAILED_KNOWN_ANSWERS.
        """
        if program.trusted:
            return
        for name in program.known_answers:
            test = self._tests.get(name)
            if test is None or not test.verdict.done():
                continue
            failures = test.verdict.result().failures
            for kernel in program.kernels or (program.kernel,):
                if (detail := failures.get(kernel)) is not None:
                    raise _refusal(kernel, name, detail, self._jaxlib)

    def state(self) -> server_info_service_pb2.KnownAnswers:
        """Returns the verdicts of the present mesh's tests."""
        state = server_info_service_pb2.KnownAnswers()
        for test in list(self._tests.values()):
            verdict = test.verdict.result() if test.verdict.done() else test.pending
            for kernel, detail in verdict.failures.items():
                state.failures.add(kernel=kernel, known_answer=test.name, detail=detail)
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
        awaited = next((test for test in pending if test.is_awaited), None)
        return (session, awaited or pending[0]) if awaited is not None or self._is_quiet(session) else None

    def _is_quiet(self, session: MeshSession) -> bool:
        """Returns whether no call has needed the mesh lately, and the last test is long enough ago."""
        if time.monotonic() < self._next_test_at_s:
            return False
        return session.idle and (session.newest_call_id == self._test_call_id or session.idle_s >= _QUIET_S)

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
        self._report(verdict)
        if all(other.verdict.done() for other in list(self._tests.values())):
            state = self.state()
            structlog.get_logger().info(
                "known-answer tests done", passed=state.passed, failed=len(state.failures), pending=state.pending
            )

    def _report(self, verdict: Verdict) -> None:
        for kernel, detail in verdict.failures.items():
            structlog.get_logger().error(
                "a kernel failed a known-answer test and is refused; install another version of jaxlib, or remove "
                "compiler flags",
                kernel=kernel,
                known_answer=verdict.known_answer,
                detail=detail,
                jaxlib=self._jaxlib,
            )


def _refusal(kernel: str, known_answer: str, detail: str, jaxlib: str) -> CallError:
    return CallError(
        Reason.KERNEL_FAILED_KNOWN_ANSWERS,
        f"kernel {kernel!r} failed the known-answer test {known_answer!r} on this server's jaxlib {jaxlib}: "
        f"{shorten(detail)}; it would return wrong numbers and is not run; have the server's administrator install "
        "another version of jaxlib, or remove the compiler flags set in XLA_FLAGS",
        metadata={"known_answer": known_answer, "detail": detail, "jaxlib": jaxlib},
    )

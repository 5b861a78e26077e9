"""Known-answer tests: run on the mesh while it is idle, or when a call waits for one; what fails is refused."""

from __future__ import annotations

import time
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

import structlog

from shardcall.v1 import server_info_service_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.programs.cache_entry import CachedProgram
from shardcall_server.frontend.programs.task_thread import TaskThread
from shardcall_server.frontend.programs.verdicts import Verdict, Verdicts
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.command import known_answer_key
from shardcall_server.frontend.workers.session import MeshSession, SessionEndedError
from shardcall_worker.v1 import known_answer_pb2, link_pb2

_QUIET_S = 1.0  # how long the mesh must have been idle before it runs a test that no call waits for
_REST = 9  # times as long as a test took it rests, unless a call waits: a tenth of the time at most is spent on tests
_POLL_S = 0.25
_MAX_ATTEMPTS = 3  # to run one test; then it says nothing
_MAX_SUSPECTED = 3  # times that the mesh ended while a test and other programs were under way


@dataclass(eq=False)
class _Test:
    """A test as the mesh has it.

    Attributes:
        name: its name.
        kernels: what it vouches for.
        digest: what its verdict is kept by.
        verdict: what it has shown, once it has run.
        is_wanted: whether a call waits for it.
        attempts: how often it was begun without a verdict.
        suspected: how often the mesh ended while it and other programs were under way.
    """

    name: str
    kernels: tuple[str, ...]
    digest: str
    verdict: Future[Verdict] = field(default_factory=Future)
    is_wanted: bool = False
    attempts: int = 0
    suspected: int = 0

    @property
    def not_run(self) -> Verdict:
        """Its verdict as long as it has not been run, or if it cannot be."""
        return Verdict(self.name, {}, self.kernels)


class KnownAnswers(TaskThread[tuple[MeshSession, _Test]]):
    """Runs the tests of the present mesh, one after the other, on a thread of its own.

    A verdict holds for whatever mesh has the same digest: after a restart of the mesh nothing is run again.

    Args:
        verdicts: what was found before.
    """

    def __init__(self, verdicts: Verdicts) -> None:
        super().__init__("known-answers", _POLL_S)
        self._verdicts = verdicts
        self._tests: dict[str, _Test] = {}
        self._session: MeshSession | None = None
        self._jaxlib = ""
        self._own_call_id = -1
        self._rests_until_s = 0.0
        self._thread.start()

    def begin(self, session: MeshSession) -> None:
        """Turns to a new mesh, which is ready."""
        ready = session.ready.result()
        with self._changed:
            self._session, self._jaxlib, self._own_call_id = session, ready.versions.jaxlib, -1
            before, self._tests = self._tests, {}
            for told in ready.known_answers:
                self._tests[told.name] = self._as_told(told, before.get(told.name))
            self._changed.notify()
        for name in before.keys() - self._tests.keys():  # calls may wait for them
            self._settle(before[name], before[name].not_run)

    def _as_told(self, told: known_answer_pb2.KnownAnswer, before: _Test | None) -> _Test:
        digest = told.digest.hex()
        if before is not None and (before.digest == digest or not before.verdict.done()):
            before.digest = digest  # calls may wait for it
            return before
        test = _Test(told.name, tuple(told.kernels), digest)
        if (verdict := self._verdicts.get(digest)) is not None:
            test.verdict.set_result(verdict)
            self._report(verdict)
        return test

    def require(self, call: ServerCall, program: CachedProgram) -> None:
        """Waits until what vouches for a program has run.

        Raises:
            CallError: KERNEL_FAILED_KNOWN_ANSWERS; or the call's deadline passed, or its caller left.
        """
        if program.trusted:
            return
        for name in program.known_answers:
            test = self._tests.get(name)
            if test is not None and not test.verdict.done():
                with self._changed:
                    test.is_wanted = True
                    self._changed.notify()
                with call.phase("queue"):
                    call.wait(test.verdict, f"waiting for the known-answer test {name!r}")
        self.check(program)
        program.trusted = True

    def check(self, program: CachedProgram) -> None:
        """Refuses a program of whose kernel it is known already that it fails.

        Raises:
            CallError: KERNEL_FAILED_KNOWN_ANSWERS.
        """
        if program.trusted:
            return
        for name in program.known_answers:
            test = self._tests.get(name)
            if test is not None and test.verdict.done():
                detail = test.verdict.result().failures.get(program.kernel)
                if detail is not None:
                    raise _refusal(program.kernel, name, detail, self._jaxlib)

    def state(self) -> server_info_service_pb2.KnownAnswers:
        """What the tests of the present mesh have shown."""
        told = server_info_service_pb2.KnownAnswers()
        for test in list(self._tests.values()):
            verdict = test.verdict.result() if test.verdict.done() else test.not_run
            for kernel, detail in verdict.failures.items():
                told.failures.add(kernel=kernel, known_answer=test.name, detail=detail)
            if not verdict.failures:
                told.pending += bool(verdict.untested)
                told.passed += not verdict.untested
        return told

    def _perform(self, task: tuple[MeshSession, _Test]) -> None:
        began_s = time.monotonic()
        try:
            self._try(*task)
        except Exception:  # noqa: BLE001  # the next is to be run all the same
            structlog.get_logger().exception("a known-answer test could not be run", known_answer=task[1].name)
            self._give_up_if_hopeless(task[1])
        finished_s = time.monotonic()
        self._rests_until_s = finished_s + _REST * (finished_s - began_s)

    def _pending(self) -> list[_Test]:
        return [test for test in self._tests.values() if not test.verdict.done()]

    def _has_tasks(self) -> bool:
        return bool(self._pending())

    def _pop(self) -> tuple[MeshSession, _Test] | None:
        pending, session = self._pending(), self._session
        if session is None or not pending or session.ended:
            return None
        wanted = next((test for test in pending if test.is_wanted), None)
        return (session, wanted or pending[0]) if wanted is not None or self._is_quiet(session) else None

    def _is_quiet(self, session: MeshSession) -> bool:
        """Whether no call has wanted the mesh lately, tests do not count, and the last test is long enough ago."""
        if time.monotonic() < self._rests_until_s:
            return False
        return session.idle and (session.newest_call_id == self._own_call_id or session.idle_s >= _QUIET_S)

    def _ask(self, session: MeshSession, test: _Test, message: link_pb2.FrontEndMessage) -> link_pb2.WorkerMessage:
        answer = session.command(message)
        self._own_call_id = -1 if test.is_wanted else message.call_id
        return answer.result()

    def _try(self, session: MeshSession, test: _Test) -> None:
        """Runs a test once; it stays without a verdict where it cannot be run."""
        test.attempts += 1
        if (found := self._verdicts.get_shared(test.digest)) is not None:  # another server's
            self._settle(test, found)
            return
        try:
            compile_it = known_answer_pb2.CompileKnownAnswer(name=test.name)
            self._ask(session, test, link_pb2.FrontEndMessage(compile_known_answer=compile_it))
            run_it = known_answer_pb2.RunKnownAnswer(name=test.name)
            answer = self._ask(session, test, link_pb2.FrontEndMessage(run_known_answer=run_it))
        except SessionEndedError:
            test.attempts -= 1  # the next mesh has it
        except CallError as error:
            self._not_run(session, test, error)
        else:
            ran = answer.known_answer_run
            failures = {failure.kernel: failure.detail for failure in ran.failures}
            self._keep(test, Verdict(test.name, failures, tuple(ran.untested)))

    def _not_run(self, session: MeshSession, test: _Test, error: CallError) -> None:
        """Counts against a test that the mesh ended while it was under way, if it may be the reason."""
        blamed = session.exit_reason.quarantined_keys if session.exit_reason is not None else ()
        key = known_answer_key(test.name)
        test.suspected += key in blamed
        if {*blamed} == {key} or test.suspected >= _MAX_SUSPECTED:
            self._keep(test, Verdict(test.name, dict.fromkeys(test.kernels, "the test ended the mesh")))
            return
        structlog.get_logger().info("a known-answer test was not run", known_answer=test.name, reason=error.message)
        self._give_up_if_hopeless(test)

    def _give_up_if_hopeless(self, test: _Test) -> None:
        if test.attempts >= _MAX_ATTEMPTS and not test.verdict.done():
            structlog.get_logger().warning("a known-answer test cannot be run", known_answer=test.name)
            self._settle(test, test.not_run)

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
        if all(each.verdict.done() for each in list(self._tests.values())):
            told = self.state()
            structlog.get_logger().info(
                "known-answer tests done", passed=told.passed, failed=len(told.failures), pending=told.pending
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

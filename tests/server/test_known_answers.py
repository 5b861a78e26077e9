"""Known-answer tests on meshes of fake workers: their schedule, and the effects and lifetime of their verdicts."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest.mock import Mock

import pytest
from end_to_end.processes import wait_for
from server.conftest import on_threads
from server.fake_calls import FakeServerCall
from server.fake_workers import FAILED, PATIENCE_S, READY, FakeWorker, RunningMesh, usual
from structlog.testing import capture_logs

from server import conftest as refusals
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.programs import known_answers as module
from shardcall_server.frontend.programs.cache_entry import CachedProgram
from shardcall_server.frontend.programs.known_answers import KnownAnswerRunner
from shardcall_server.frontend.programs.verdicts import Verdict, Verdicts
from shardcall_worker.v1 import known_answer_pb2, link_pb2

DIGEST = "0123456789abcdef" * 4
WRONG = known_answer_pb2.KnownAnswerFailure(kernel="arctan", detail="3584 of 4096 elements are wrong")
NAMES = {"trig": ("sin", "arctan"), "halo": ("diff",)}
CALL = FakeServerCall()


def host(
    name: str = "a", processor: int = 1, untested: tuple[str, ...] = (), **wrong: known_answer_pb2.KnownAnswerFailure
) -> FakeWorker:
    """Returns a worker with two known-answer tests: some fail, and some kernels cannot be compiled for them."""
    digests = {test: bytes([processor, i] * 16) for i, test in enumerate(NAMES)}

    def answer(message: link_pb2.FrontEndMessage) -> list[dict[str, object]]:
        match message.WhichOneof("command"):
            case "start":
                ready = link_pb2.Ready()
                ready.CopyFrom(READY)
                ready.versions.jaxlib = "0.10.2"
                for test, kernels in NAMES.items():
                    ready.known_answers.add(name=test, kernels=kernels, digest=digests[test])
                return [{"ready": ready}]
            case "compile_known_answer":
                return [{"compiling": link_pb2.Compiling()}, {"known_answer_compiled": {}}]
            case "run_known_answer":
                test = message.run_known_answer.name
                failures, left_out = [wrong[test]] if test in wrong else [], set(untested) & set(NAMES[test])
                return [{"known_answer_run": known_answer_pb2.KnownAnswerRun(failures=failures, untested=left_out)}]
        return usual(message)

    return FakeWorker(name, answer)


def host_that_answers(*answers: dict[str, object]) -> FakeWorker:
    """Returns a worker that answers thus to every command to run a test."""
    worker = host()
    usually = worker.answer
    worker.answer = lambda message: [*answers] if message.HasField("run_known_answer") else usually(message)
    return worker


def runs(worker: FakeWorker) -> list[str]:
    return [message.run_known_answer.name for message in worker.got if message.HasField("run_known_answer")]


@pytest.fixture
def start(run) -> object:
    """Makes meshes of workers, and passes them to the runner of known-answer tests."""

    def start(runner: KnownAnswerRunner, *workers: FakeWorker) -> RunningMesh:
        mesh = run(*workers)
        runner.begin(mesh.session)
        return mesh

    return start


@pytest.fixture
def runner(tmp_path, monkeypatch, request):
    """A strict runner with a file in the test's folder, which runs no test by itself unless the test requests it."""
    monkeypatch.setattr(module, "QUIET_S", 3600.0)
    started_runner = KnownAnswerRunner(Verdicts(str(tmp_path)), is_strict=getattr(request, "param", True))
    yield started_runner
    started_runner.close()


def program(kernel: str, *tests: str) -> CachedProgram:
    return CachedProgram("key", kernel, {}, (), 1, known_answers=tests)


def require(runner: KnownAnswerRunner, program: CachedProgram) -> None:
    CALL.run(runner.require(CALL, program))


def refused(runner: KnownAnswerRunner, kernel: str, *tests: str) -> CallError:
    with refusals.refused(Reason.KERNEL_FAILED_KNOWN_ANSWERS) as caught:
        require(runner, program(kernel, *tests))
    return caught.value


def test_a_call_waits_for_the_tests_of_its_kernel_which_run_once(runner, start):
    start(runner, worker := host())
    sin = program("sin", "trig")
    on_threads(lambda _: require(runner, sin), range(8))
    assert sin.trusted
    require(runner, program("transpose"))
    assert runs(worker) == ["trig"]
    assert (runner.state().passed, runner.state().pending) == (1, 1)


def test_between_tests_the_mesh_rests_unless_a_call_waits(runner, start, monkeypatch):
    monkeypatch.setattr(module, "QUIET_S", 0.0)
    monkeypatch.setattr(module, "_REST", 1e9)
    start(runner, worker := host())
    wait_for(lambda: runner.state().pending == 1)
    first, second = NAMES
    assert runs(worker) == [first]
    require(runner, program("sin", second))
    assert runs(worker) == [first, second]


@pytest.mark.parametrize("runner", [False], indirect=True)
def test_unless_the_server_is_strict_no_call_waits_and_a_failure_names_what_was_answered(runner, start, monkeypatch):
    monkeypatch.setattr(module, "_LATEST_S", 0.0)  # however busy the mesh is
    start(runner, worker := host_that_answers())
    arctan, derived = program("arctan", "trig"), program("transpose")
    for _ in range(2):
        require(runner, arctan)
    assert not arctan.trusted
    early = Mock(untested=runner.untested(arctan, []))
    derived_array = Mock(untested=runner.untested(derived, [early]))
    require(runner, program("diff", "halo"))
    wait_for(lambda: runs(worker) == ["trig"])
    assert runner.suspicion(early) == ""
    with capture_logs() as logs:
        worker.say(worker.got[-1].call_id, known_answer_run={"failures": [WRONG]})
        wait_for(lambda: logs)
    with refusals.refused(Reason.KERNEL_FAILED_KNOWN_ANSWERS):
        require(runner, arctan)
    (failure,) = runner.state().failures
    assert (failure.calls, logs[0]["calls_before"], logs[0]["last_calls_before"]) == (2, 2, ["an id of a"] * 2)
    expected = f"kernel 'arctan', which failed the known-answer test 'trig': {WRONG.detail}"
    assert runner.suspicion(early) == runner.suspicion(derived_array) == expected
    error = refusals.refusal(runner.check_array, derived_array, "operand 1")
    assert error.field == "operand 1"
    assert f"computed by {expected}, before" in error.message


@pytest.mark.parametrize("runner", [False], indirect=True)
def test_an_idle_mesh_tests_the_kernels_in_use_first(runner, start, monkeypatch):
    second = [*NAMES][1]
    start(runner, worker := host())
    diff = program("diff", second)
    require(runner, diff)
    wait_for(lambda: runs(worker) == [second])
    wait_for(lambda: runner.state().passed == 1)
    require(runner, diff)
    assert diff.trusted
    assert runner.untested(diff, []) == ()


def test_a_kernel_that_fails_is_refused_and_those_beside_it_are_not(runner, start):
    start(runner, host(trig=WRONG))
    with capture_logs() as logs:
        error = refused(runner, "arctan", "trig")
    assert "failed the known-answer test 'trig' on this server's jaxlib 0.10.2: 3584 of 4096 elements" in error.message
    assert "install another version of jaxlib, or remove" in error.message
    assert error.metadata == {"known_answer": "trig", "detail": WRONG.detail, "jaxlib": "0.10.2"}
    assert [(line["kernel"], line["log_level"]) for line in logs] == [("arctan", "error")]
    require(runner, program("sin", "trig"))
    with pytest.raises(CallError):
        runner.check(program("arctan", "trig"))
    (failure,) = runner.state().failures
    assert (failure.kernel, failure.known_answer, failure.detail) == ("arctan", "trig", WRONG.detail)


def test_hosts_of_other_processors_have_separate_verdicts_and_a_failure_of_one_is_the_meshs(runner, start):
    start(runner, host("a"), host("b"))
    require(runner, program("diff", "halo"))
    start(runner, worker := host("a"), host("b", processor=2, trig=WRONG), host("c"))
    require(runner, program("diff", "halo"))
    assert runs(worker) == ["halo"]
    refused(runner, "arctan", "trig")


def test_the_next_mesh_and_the_next_server_run_nothing_again(runner, start, tmp_path):
    mesh = start(runner, first := host(trig=WRONG))
    refused(runner, "arctan", "trig")
    mesh.close()
    start(runner, worker := host())
    refused(runner, "arctan", "trig")
    again = KnownAnswerRunner(Verdicts(str(tmp_path)))
    try:
        start(again, worker_of_next := host())
        with pytest.raises(CallError):
            again.check(program("arctan", "trig"))
    finally:
        again.close()
    assert runs(first) == ["trig"]
    assert runs(worker) == runs(worker_of_next) == []


@pytest.mark.parametrize("command", ["compile_known_answer", "run_known_answer"])
def test_a_test_that_ends_the_worker_has_failed(runner, start, command):
    worker = host()
    usually = worker.answer

    def dies(message):
        if message.WhichOneof("command") == command:
            worker.say(message.call_id, compiling=link_pb2.Compiling())
            worker.die(-signal.SIGSEGV)
            return []
        return usually(message)

    worker.answer = dies
    start(runner, worker)
    assert refused(runner, "sin", "trig").metadata["detail"] == "the test ended the mesh"
    start(runner, following := host())
    require(runner, program("diff", "halo"))
    assert runs(following) == ["halo"]


@contextmanager
def call_that_waits(runner: KnownAnswerRunner, worker: FakeWorker) -> Iterator[None]:
    """A block while a call waits for a test that a worker runs; the call goes on at its end."""
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(require, runner, program("sin", "trig"))
        wait_for(lambda: runs(worker) != [])
        yield
        waiting.result(PATIENCE_S)


def test_a_killed_worker_says_nothing_of_the_test_in_progress(runner, start):
    mesh = start(runner, worker := host_that_answers())
    with call_that_waits(runner, worker):
        mesh.close()
        start(runner, following := host())
    assert runs(following) == ["trig"]


def test_a_test_that_the_end_of_the_server_interrupts_is_not_reported(runner, start):
    mesh = start(runner, worker := host_that_answers())
    with capture_logs() as logs, call_that_waits(runner, worker):
        mesh.session.shut_down(PATIENCE_S)
        mesh.exit_reason.result(PATIENCE_S)
        start(runner, host())
    assert not [line for line in logs if line["event"] == "a known-answer test was not run"]


def test_a_test_that_cannot_be_run_is_abandoned_after_some_attempts(runner, start):
    start(runner, worker := host_that_answers(FAILED))
    with capture_logs() as logs:
        require(runner, program("sin", "trig"))
    assert len(runs(worker)) == 3
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["a known-answer test cannot be run"]
    assert (runner.state().passed, runner.state().pending) == (0, 2)


def test_a_test_that_left_out_a_kernel_has_not_passed_and_its_verdict_is_not_kept(runner, start, tmp_path):
    start(runner, host("a"), host("b", untested=("sin",)))
    with capture_logs() as logs:
        require(runner, program("arctan", "trig"))
        require(runner, program("diff", "halo"))
    assert (runner.state().passed, runner.state().pending) == (1, 1)
    summary = next(line for line in logs if line["event"] == "known-answer tests done")
    assert (summary["passed"], summary["failed"], summary["pending"]) == (1, 0, 1)
    stored = json.loads((tmp_path / Verdicts.FILE_NAME).read_text())["verdicts"].values()
    assert [verdict["known_answer"] for verdict in stored] == ["halo"]


def test_a_test_that_fails_has_failed_whatever_it_left_out(runner, start):
    start(runner, host(untested=("sin",), trig=WRONG))
    refused(runner, "arctan", "trig")
    summary = runner.state()
    assert (summary.passed, summary.pending, len(summary.failures)) == (0, 1, 1)  # the other test is pending


def test_a_fault_after_a_verdict_does_not_end_the_tests(runner, start, monkeypatch):
    """The last attempt gives a verdict, and a later step fails: the test must not be abandoned as well."""
    settle, calls = runner._settle, []

    def faulty(test, verdict):
        calls.append(test.name)
        settle(test, verdict)
        raise RuntimeError("no log")

    monkeypatch.setattr(runner, "_settle", faulty)
    monkeypatch.setattr(module, "_MAX_ATTEMPTS", 1)
    start(runner, host())
    for kernel, test in (("sin", "trig"), ("diff", "halo")):
        require(runner, program(kernel, test))
    assert calls == ["trig", "halo"]


def test_a_fault_before_a_verdict_is_an_attempt(runner, start, monkeypatch):
    monkeypatch.setattr(runner._verdicts, "get_shared", Mock(side_effect=RuntimeError("no file")))
    start(runner, host())
    require(runner, program("sin", "trig"))
    assert runner.state().pending == len(NAMES)


def test_calls_that_wait_for_a_test_that_the_next_mesh_does_not_have_go_on(runner, start, monkeypatch):
    start(runner, worker := host_that_answers())
    with capture_logs() as logs:
        with call_that_waits(runner, worker):
            monkeypatch.setattr(f"{__name__}.NAMES", {"halo": NAMES["halo"]})
            start(runner, host())
        worker.say(worker.got[-1].call_id, known_answer_run={})  # the verdict comes too late
        require(runner, program("diff", "halo"))
    assert (runner.state().passed, runner.state().pending) == (1, 0)
    assert [line for line in logs if line["log_level"] == "error"] == []


def test_a_late_verdict_of_the_mesh_before_is_that_of_its_processor_alone(runner, start):
    start(runner, worker := host_that_answers())
    with call_that_waits(runner, worker):
        start(runner, following := host(processor=2))
        worker.say(worker.got[-1].call_id, known_answer_run=known_answer_pb2.KnownAnswerRun(failures=[WRONG]))
    assert runs(following) == ["trig"]
    require(runner, program("arctan", "trig"))
    start(runner, host())
    refused(runner, "arctan", "trig")


def test_a_verdict_that_another_server_has_stored_since_is_taken(runner, start, tmp_path):
    start(runner, worker := host())
    Verdicts(str(tmp_path)).put(bytes([1, 1] * 16).hex(), Verdict("halo", {"diff": "all is wrong"}))
    refused(runner, "diff", "halo")
    assert runs(worker) == []


def test_a_damaged_verdict_costs_only_running_the_tests_anew(tmp_path):
    """`test_tuning_cache` damages such files in other ways."""
    file = tmp_path / Verdicts.FILE_NAME
    file.touch(mode=0o600)
    file.write_text(json.dumps({"format": 1, "verdicts": {DIGEST: {"known_answer": "halo", "failures": []}}}))
    with capture_logs() as logs:
        verdicts = Verdicts(str(tmp_path))
    assert [line["log_level"] for line in logs] == ["warning"]
    assert verdicts.get(DIGEST) is None
    verdicts.put(DIGEST, Verdict("halo", {"diff": "wrong"}))
    assert Verdicts(str(tmp_path)).get(DIGEST) == Verdict("halo", {"diff": "wrong"})

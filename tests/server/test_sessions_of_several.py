"""One mesh of several workers: the same commands for all in one order, also in batches, one merged answer, and one
exit reason.
"""

import contextlib
import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from end_to_end.processes import wait_for
from server.conftest import on_threads, refusal, refused
from server.fake_workers import FAILED, PATIENCE_S, READY, FakeWorker, RunningMesh, but

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.workers.exit_reason import ExitCause, ExitReason
from shardcall_server.frontend.workers.session import SessionEndedError
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2, measure_pb2

PREPARE = link_pb2.FrontEndMessage(prepare={})
TRIM = link_pb2.FrontEndMessage(trim={})
PUT = link_pb2.FrontEndMessage(put_array={})


@pytest.fixture
def mesh(run) -> RunningMesh:
    return run(FakeWorker("a"), FakeWorker("b"))


@pytest.fixture
def silent(run) -> RunningMesh:
    """A mesh of two workers that do not answer an execution unless the test says so."""
    return run(*(FakeWorker(name, but("execute")) for name in "ab"))


def failure_of(answer: Future[Any]) -> tuple[Reason, str]:
    error = refusal(answer.result, PATIENCE_S)
    return error.reason, error.message


def restarted(answer, cause=None, *, is_suspect=False) -> None:
    error = refusal(answer.result, PATIENCE_S)
    assert error.reason is Reason.MESH_RESTARTED
    if cause is not None:
        assert error.metadata == {"ended": cause.value} | ({"suspect": "true"} if is_suspect else {})
        assert f"({cause.description})" in error.message


def test_every_worker_gets_the_same_commands_in_the_same_order_and_numbers(run):
    mesh = run(FakeWorker("a"), FakeWorker("b"), FakeWorker("c"))

    def many(thread: int) -> None:
        for i in range(20):
            mesh.session.notify(TRIM)
            mesh.execute(f"{thread}.{i}").result(PATIENCE_S)
            with mesh.session.batch:
                answers = [mesh.execute(f"{thread}.{i}.{j}") for j in range(5)]
            for answer in answers:
                answer.result(PATIENCE_S)

    on_threads(many, range(6))
    mesh.execute().result(PATIENCE_S)
    first, *others = [worker.commands[1:] for worker in mesh.workers]
    assert [sequence for _, _, sequence in first] == list(range(1, 842))
    assert others == [first, first]
    keys = [[message.execute.key_digest for message in worker.got] for worker in mesh.workers]
    assert keys[0] == keys[1] == keys[2]


def test_memory_is_attached_to_workers_separately_and_takes_no_number(mesh, tmp_path):
    with (tmp_path / "file").open("w+b") as file:
        for _ in range(2):
            mesh.execute(memory=[SimpleNamespace(memory_id=4, nbytes=8, fd=file.fileno())]).result(PATIENCE_S)
        mesh.session.detach(4)
        mesh.execute().result(PATIENCE_S)
    names = ["start", "attach_memory", "execute", "execute", "detach_memory", "execute"]
    for worker in mesh.workers:
        assert [name for name, _, _ in worker.commands] == names
        assert [sequence for _, _, sequence in worker.commands] == [0, 0, 1, 2, 0, 3]


def test_a_command_is_answered_when_its_last_worker_has_answered(run):
    mesh = run(FakeWorker("a"), FakeWorker("b", but("execute")))
    answer = mesh.execute()
    assert mesh.session.command(PUT).result(PATIENCE_S).HasField("array_put"), "which came after it"
    assert not answer.done()
    assert not mesh.session.idle
    mesh.workers[1].say(1, executed=link_pb2.Executed(execute_seconds=2.0))
    assert answer.result(PATIENCE_S).executed.execute_seconds == 2.0


def test_an_answer_that_comes_twice_is_taken_once(run):
    twice = but("execute", {"executed": link_pb2.Executed()}, {"executed": link_pb2.Executed()})
    mesh = run(FakeWorker("a", twice), FakeWorker("b", twice))
    for _ in range(20):
        mesh.execute().result(PATIENCE_S)
    assert not mesh.exit_reason.done()


def test_progress_is_that_of_the_slowest_worker(silent):
    reported: list[int] = []
    first, second = silent.workers
    answer = silent.execute(on_gathered=reported.append)
    first.say(1, gathered=link_pb2.Gathered(byte_count=100))
    for nbytes in (40, 70):
        second.say(1, gathered=link_pb2.Gathered(byte_count=nbytes))
        wait_for(lambda nbytes=nbytes: reported[-1:] == [nbytes])
    first.say(1, executed=link_pb2.Executed())
    second.say(1, gathered=link_pb2.Gathered(byte_count=200))
    second.say(1, executed=link_pb2.Executed())
    answer.result(PATIENCE_S)
    assert reported == sorted(reported)
    assert set(reported) <= {40, 70, 100, 200}


def test_one_that_fails_alone_ends_the_mesh_with_the_reason(run):
    mesh = run(FakeWorker("a"), FakeWorker("b", but("execute", FAILED)))
    restarted(mesh.execute("k"), ExitCause.UNRESPONSIVE)
    end = mesh.exit_reason.result(PATIENCE_S)
    assert (end.text, end.suspected_keys) == ("host b alone failed: no", ()), "a broken network is no program's fault"
    assert all(worker.ended for worker in mesh.workers)


def test_one_that_alone_has_no_memory_fails_the_call_and_counts_against_the_program(run):
    full = {"failure": link_pb2.Failure(reason="OUT_OF_DEVICE_MEMORY", message="no memory")}
    mesh = run(FakeWorker("a", but("put_array")), FakeWorker("b", but("execute", full)))
    waiting = mesh.session.command(PUT)
    assert failure_of(mesh.execute("k")) == (Reason.OUT_OF_DEVICE_MEMORY, "no memory")
    restarted(waiting, ExitCause.UNRESPONSIVE)
    end = mesh.exit_reason.result(PATIENCE_S)
    assert (end.text, end.suspected_keys) == ("host b alone failed: no memory", ("k",))


def test_no_progress_is_reported_after_a_worker_failed(run):
    """Its result buffer holds the results of another call."""
    reported: list[int] = []
    first, second = FakeWorker("a", but("execute", FAILED)), FakeWorker("b", but("execute"))
    answer = run(first, second).execute(on_gathered=reported.append)
    second.say(1, gathered=link_pb2.Gathered(byte_count=100))
    second.say(1, executed=link_pb2.Executed())
    failure_of(answer)
    assert not reported


def test_memory_is_named_to_none_that_does_not_share_it(mesh):
    """An agent may have a memory file of its own under the front end's name for one."""
    connection = mesh.session.connections[0]
    worker = mesh.workers[0]
    worker.data_link = worker.link
    fd = os.memfd_create("test")
    try:
        file = SimpleNamespace(memory_id=5, nbytes=1, fd=fd)
        message = link_pb2.FrontEndMessage(evict=link_pb2.Evict(key_digest="k"))
        connection.send(message, message.SerializeToString(), [file], None, None)
        connection.detach(5)
        mesh.session.shut_down(PATIENCE_S)
    finally:
        os.close(fd)
    assert [name for name, _, _ in worker.commands] == ["start", "evict", "shutdown"]


def test_what_all_fail_at_is_the_callers_and_the_mesh_goes_on(run):
    mesh = run(*(FakeWorker(name, but("execute", FAILED)) for name in "ab"))
    assert failure_of(mesh.execute()) == (Reason.INTERNAL, "no")
    assert not mesh.exit_reason.done()


def test_a_program_that_one_could_not_make_is_forgotten_by_all(run):
    prepared_alone = but("prepare", {"prepared": link_pb2.Prepared(plan=kernel_pb2.Plan(key_digest="d"))})
    mesh = run(FakeWorker("a", prepared_alone), FakeWorker("b", but("prepare", FAILED)))
    failure_of(mesh.session.command(PREPARE))
    mesh.execute().result(PATIENCE_S)
    for worker in mesh.workers:
        assert [message.evict.key_digest for message in worker.got if message.HasField("evict")] == ["d"]


def test_nor_is_it_there_for_a_call_that_asked_for_it_before_that(run):
    """Other arguments for the same program, which all workers have evicted."""
    first, second = FakeWorker("a", but("prepare")), FakeWorker("b", but("prepare"))
    mesh = run(first, second)
    prepared = link_pb2.Prepared(fingerprint=b"1", plan=kernel_pb2.Plan(key_digest="d"))
    asked = [mesh.session.command(PREPARE) for _ in range(2)]
    second.say(1, **FAILED)
    second.say(2, prepared=prepared)
    first.say(1, prepared=prepared)
    assert failure_of(asked[0])[1] == "no"
    first.say(2, prepared=prepared)
    assert failure_of(asked[1])[1] == "no"
    again = mesh.session.command(PREPARE)
    for worker in mesh.workers:
        worker.say(3, prepared=prepared)
    assert again.result(PATIENCE_S).HasField("prepared")


def test_a_worker_that_saw_a_gap_ends_the_mesh_with_a_message(silent):
    answer = silent.execute()
    silent.workers[1].say(0, failure=link_pb2.Failure(reason="INTERNAL", message="command 3 came after command 1"))
    restarted(answer)
    assert "out of step: command 3 came after command 1" in silent.exit_reason.result(PATIENCE_S).text


@pytest.mark.parametrize("index", [0, 2])
def test_the_exit_of_one_ends_the_others_before_calls_are_answered_and_is_reported_with_its_host(run, index):
    """Until then, they may write to the call's memory."""
    mesh, seen = run(*(FakeWorker(name, but("execute")) for name in "abc")), []
    answers = [mesh.execute() for _ in range(3)]
    for answer in answers:
        answer.add_done_callback(lambda _: seen.append(all(worker.ended for worker in mesh.workers)))
    mesh.workers[index].die(-signal.SIGKILL)
    for answer in answers:
        restarted(answer, ExitCause.KILLED)
    assert seen == [True] * 3
    end: ExitReason = mesh.exit_reason.result(PATIENCE_S)
    assert end.text == f"ended by signal 9 (SIGKILL), on host {'abc'[index]}"
    assert end.cause is ExitCause.KILLED
    with pytest.raises(SessionEndedError):
        mesh.execute()


def test_the_end_of_one_for_lack_of_memory_is_reported_to_callers(silent):
    answer, waits = silent.execute("large"), silent.execute("waits")
    silent.workers[1].out_of_memory = True
    silent.workers[1].die(-signal.SIGKILL)
    restarted(answer, ExitCause.OUT_OF_MEMORY, is_suspect=True)
    restarted(waits, ExitCause.OUT_OF_MEMORY)
    assert silent.exit_reason.result(PATIENCE_S).text == "ended by signal 9 (SIGKILL) when memory ran out, on host b"


def test_a_crash_quarantines_what_ran_and_others_that_die_of_it_are_not_the_reason(silent):
    answer, again, other = silent.execute("bad"), silent.execute("bad"), silent.execute("good")
    silent.workers[1].die(-signal.SIGSEGV)
    restarted(answer, ExitCause.CRASHED, is_suspect=True)
    restarted(again, ExitCause.CRASHED, is_suspect=True)
    restarted(other, ExitCause.CRASHED)
    end = silent.exit_reason.result(PATIENCE_S)
    assert end.suspected_keys == ("bad",)
    assert "SIGSEGV" in end.text
    assert "on host b" in end.text


def test_where_one_has_no_capacity_none_gets_the_command(mesh):
    link = mesh.workers[1].link
    link.has_capacity = lambda nbytes: False
    assert refusal(mesh.execute, "refused").reason is Reason.SERVER_BUSY
    del link.has_capacity
    mesh.execute("taken").result(PATIENCE_S)
    assert mesh.session.idle
    for worker in mesh.workers:
        assert [message.execute.key_digest for message in worker.got[1:]] == ["taken"]


def test_a_forget_command_that_reaches_no_worker_ends_the_mesh(mesh):
    mesh.workers[1].link.has_capacity = lambda nbytes: False
    mesh.session.notify(link_pb2.FrontEndMessage(evict=link_pb2.Evict(key_digest="k")))
    assert mesh.exit_reason.result(PATIENCE_S).text == "a worker did not read its link"


@pytest.mark.parametrize("error", [LinkClosedError, LinkFullError, ValueError])
def test_a_command_that_one_worker_has_and_another_has_not_ends_with_the_mesh(run, error):
    """The first may read and write its memory, so its sender must not go on before that worker has ended."""
    first = FakeWorker("a", but("execute"))
    mesh = run(first, FakeWorker("b"))
    mesh.workers[1].link.send = Mock(side_effect=error)
    answer = mesh.execute()
    if error is LinkClosedError:
        assert not answer.done()
        mesh.workers[1].die(-signal.SIGKILL)
    restarted(answer)
    mesh.exit_reason.result(PATIENCE_S)
    assert first.ended


@pytest.mark.parametrize("error", [LinkClosedError, LinkFullError])
def test_a_command_that_no_worker_has_may_go_to_the_next_mesh(mesh, error):
    mesh.workers[0].link.send = Mock(side_effect=error)
    try:
        answer = mesh.execute()
    except SessionEndedError:
        pass
    else:  # the mesh had ended by the time that the command was to be taken back
        restarted(answer)
    assert len(mesh.workers[1].got) == 1
    assert mesh.session.ended or mesh.exit_reason.result(PATIENCE_S)


def test_a_command_that_cannot_be_sent_for_a_fault_of_ours_leaves_no_gap_behind(mesh):
    mesh.workers[0].link.send = Mock(side_effect=KeyError)
    with contextlib.suppress(KeyError):  # or the mesh had ended by then
        restarted(mesh.execute())
    assert mesh.exit_reason.result(PATIENCE_S).text == "a command could not be sent"
    assert mesh.session.idle


def test_workers_that_differ_are_no_mesh(run):
    other = link_pb2.Ready(platform="gpu", devices=READY.devices)
    mesh = run(FakeWorker("a"), FakeWorker("b", but("start", {"ready": other})), ready=False)
    assert "the platform of hosts a and b differ" in mesh.exit_reason.result(PATIENCE_S).text
    assert refusal(mesh.session.ready.result, PATIENCE_S).reason is Reason.MESH_NOT_READY


def test_a_message_of_a_worker_that_is_new_ends_the_mesh(run):
    mesh = run(worker := FakeWorker("a"))
    worker.say(3)
    assert mesh.exit_reason.result(PATIENCE_S).text == "a worker sent a message of an unknown kind"


def test_an_invalid_message_ends_the_mesh_and_is_reported_as_a_fault(silent):
    answer = silent.execute()
    silent.workers[1].other_end.send(b"\xff\xff")
    restarted(answer)
    assert silent.exit_reason.exception(PATIENCE_S) is not None


def test_a_shutdown_waits_for_every_worker_and_the_calls_that_it_interrupts_say_so(silent):
    answer = silent.execute()
    silent.session.shut_down(PATIENCE_S)
    silent.exit_reason.result(PATIENCE_S)
    assert [worker.status for worker in silent.workers] == [0, 0]
    assert [worker.commands[-1][0] for worker in silent.workers] == ["shutdown", "shutdown"]
    with refused(Reason.MESH_RESTARTED, "the server shut down while it worked on this call") as caught:
        answer.result(PATIENCE_S)
    assert "ended" not in caught.value.metadata


def test_a_run_is_timed_by_count_where_several_must_agree(run):
    measured = but("measure", {"measured": measure_pb2.Measured(run_seconds=[1.0])})
    mesh = run(FakeWorker("a", measured), FakeWorker("b", measured))
    measure = measure_pb2.Measure(key_digest="k", max_runs=3, max_seconds=2.0)
    mesh.session.command(link_pb2.FrontEndMessage(measure=measure)).result(PATIENCE_S)
    assert [worker.got[-1].measure.max_seconds for worker in mesh.workers] == [0.0, 0.0]


def test_arrays_in_transfer_count_as_heartbeats_and_as_work(mesh):
    """A worker's own heartbeats wait behind the results that it sends."""

    mesh.execute().result(PATIENCE_S)
    connection = mesh.session.connections[1]
    assert connection.activity == 2
    connection.worker.data_link = SimpleNamespace(moved=5)
    assert connection.activity == 7


def test_a_worker_that_exits_before_it_is_ready_is_quoted(run):
    worker = FakeWorker("a", but("start"))
    worker.last_output = "ValueError: unknown flag"
    mesh = run(worker, ready=False)
    worker.die(1)
    assert failure_of(mesh.session.ready)[1].endswith("; it said: ValueError: unknown flag")


def test_a_batch_is_sent_at_its_end_and_before_commands_of_other_threads(mesh):
    with mesh.session.batch:
        with mesh.session.batch:
            first = mesh.execute("1")
        assert not first.done()
        assert all(worker.commands[1:] == [] for worker in mesh.workers)
        with ThreadPoolExecutor(1) as other:
            other.submit(lambda: mesh.execute("2").result(PATIENCE_S)).result()
        assert first.result(PATIENCE_S)
        last = mesh.execute("3")
        mesh.session.notify(TRIM)
    assert last.result(PATIENCE_S)
    mesh.execute("4").result(PATIENCE_S)
    for worker in mesh.workers:
        assert [sequence for _, _, sequence in worker.commands[1:]] == [1, 2, 3, 4, 5]
        assert [message.execute.key_digest for message in worker.got[1:]] == ["1", "2", "3", "", "4"]


def test_a_batch_whose_body_fails_is_sent(mesh):
    answers = []
    with contextlib.suppress(KeyError), mesh.session.batch:
        answers.append(mesh.execute())
        raise KeyError
    assert answers[0].result(PATIENCE_S)


def test_commands_of_a_batch_are_lost_with_the_worker(mesh):
    with mesh.session.batch:
        answer = mesh.execute()
        mesh.workers[0].kill()
        mesh.exit_reason.result(PATIENCE_S)
    assert "restarted" in refusal(answer.result, PATIENCE_S).message

"""Reasons to stop a worker: sessions and stragglers whose commands and time the tests set, and heartbeats."""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import Future
from itertools import islice
from types import SimpleNamespace
from typing import Any

from end_to_end.processes import stop
from rows import rows
from server.conftest import refusal

from shardcall.v1 import kernel_pb2, mesh_pb2, server_info_service_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.workers.command import Command, identify, suspects
from shardcall_server.frontend.workers.exit_reason import StopRequest, exit_reason_of
from shardcall_server.frontend.workers.mesh_history import MeshHistory
from shardcall_server.frontend.workers.pending_commands import PendingCommands
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.session import mesh_restarted
from shardcall_server.frontend.workers.straggler import StragglerDetector
from shardcall_server.frontend.workers.watchdog import Watch, WatchLimits
from shardcall_server.link.framing import Link
from shardcall_worker.v1 import link_pb2

LIMITS = WatchLimits(silence_s=3, start_s=120, execute_s=60, compile_s=300, grace_s=5)


class Session:
    """Replaces the session and its one worker, and is watched; the test sets the current command and its duration.

    Args:
        *commands: those that have no answer.
        ready: whether the mesh is ready.
        stood_by: whether the worker was a spare one.
        **state: other attributes.

    Attributes:
        at_work: the processor time that the worker uses in a second.
        has_unread: whether heartbeats wait to be read.
    """

    host = ""
    data_link: DataLink | None = None
    activity = 1
    cpu_ticks = at_work = 0
    has_unread = False

    def __init__(self, *commands: Command, ready: bool = True, stood_by: bool = False, **state: Any) -> None:
        self.ready: Future[None] = Future()
        self.heartbeat = link_pb2.Heartbeat()
        self.worker = self
        self.connections = (self,)
        self.open = list(commands)
        if ready:
            self.ready.set_result(None)
        vars(self).update(state)
        self._watch = Watch(self, LIMITS, stood_by=stood_by)

    def commands(self) -> list[Command]:
        return self.open

    def stop(self, seconds: int, heartbeats: int = 1) -> Any:
        """Is watched, once a second; returns the request to stop, if there is one."""
        for _ in range(seconds):
            self.activity += heartbeats
            self.cpu_ticks += self.at_work
            if (stop := self._watch.check(1.0)) is not None:
                return stop
        return None


class DataLink:
    """A worker on another host: at every check, a further part of the command's arrays has been transferred."""

    parts = 0

    def moved_for(self, call_id: int) -> int:
        self.parts += 1
        return self.parts


def run(kernel: str = "diff", *, needed: bool = True) -> Command:
    return Command("execute", key=kernel, kernel=kernel, is_needed=lambda: needed)


def compilation(kernel: str = "diff", *, begun: bool = True) -> Command:
    return Command("prepare", key=f"call of {kernel}", kernel=kernel, compiling=begun)


def test_a_program_may_run_up_to_the_limit_since_the_one_before_was_answered():
    session = Session(run("long"), command := run("next"))
    assert session.stop(50) is None
    session.open.pop(0)
    assert session.stop(61) is None
    stop = session.stop(2)
    assert stop.reason == "running kernel next took over 60 s"
    assert (stop.culprit, stop.is_program_fault, stop.error.reason) == (command, True, Reason.EXECUTE_LIMIT)


@rows("what", ["arrays are transferred", "a file is read", "an answer is unread"])
def test_the_time_of_transfers_is_not_the_programs(what):
    session = Session(command := run())
    command.reading[0] = what == "a file is read"
    session.has_unread = what == "an answer is unread"
    session.data_link = DataLink() if what == "arrays are transferred" else None
    assert session.stop(1000) is None
    session.data_link, command.reading[0], session.has_unread = None, False, False
    assert session.stop(60) is None
    assert session.stop(3) is not None


def test_a_program_without_callers_is_stopped_after_its_grace_and_not_quarantined():
    session = Session(run("long"), left := run("left", needed=False))
    assert session.stop(40) is None
    session.open.pop(0)
    assert session.stop(6) is None, "its grace begins when it does"
    stop = session.stop(1)
    assert (stop.culprit, stop.error, stop.is_program_fault) == (left, None, False)


def test_a_compilation_is_counted_from_its_beginning():
    session = Session(waiting := compilation(begun=False))
    assert session.stop(1000) is None
    waiting.compiling = True
    assert session.stop(305) is None
    stop = session.stop(2)
    assert (stop.culprit, stop.is_program_fault, stop.error.reason) == (waiting, True, Reason.COMPILE_LIMIT)


@rows(
    ("state", "borne_s", "reason"),
    [
        ({}, 3, "the worker did not answer for 4 s"),
        ({"at_work": 1}, 30, "the worker did not answer for 31 s"),
        ({"ready": False}, 119, "the worker was not ready within 120 s"),
        ({"ready": False, "stood_by": True}, 3, "the worker did not answer for 4 s"),
        ({"has_unread": True}, 100, None),
    ],
)
def test_a_worker_is_silent_for_too_long(state, borne_s, reason):
    session = Session(**state)
    session.stop(1, heartbeats=0)
    assert session.stop(borne_s, heartbeats=0) is None
    assert session.stop(2, heartbeats=0) == (reason and StopRequest(reason))


@rows(
    ("status", "reason", "quarantined", "is_fault"),
    [
        (-signal.SIGKILL, "ended by signal 9 (SIGKILL)", (), False),
        (-signal.SIGTERM, "ended by signal 15 (SIGTERM)", (), False),
        (-signal.SIGSEGV, "ended by signal 11 (SIGSEGV) while running kernel diff", ("diff",), True),
        (-signal.SIGABRT, "ended by signal 6 (SIGABRT) while running kernel diff", ("diff",), True),
        (1, "ended by itself with exit status 1 while running kernel diff", ("diff",), True),
        (0, "it closed its link", (), True),
    ],
)
def test_an_end_is_explained_and_quarantines_what_ran(status, reason, quarantined, is_fault):
    end = exit_reason_of(status, None, suspects([run("diff"), run("next")], ()))
    assert (end.text, end.suspected_keys, end.is_fault) == (reason, quarantined, is_fault)


def test_what_ran_when_memory_ran_out_is_suspect_and_not_quarantined():
    ran, waits = run("diff"), run("next")
    end = exit_reason_of(-signal.SIGKILL, None, suspects([ran, waits], ()), oom_killed=True)
    assert (end.is_suspect(ran), end.is_suspect(waits), end.suspected_keys, end.is_fault) == (True, False, (), False)
    assert "memory ran out" in end.text
    assert "memory ran out" in mesh_restarted(end.cause).message
    for status in (-signal.SIGTERM, -signal.SIGKILL):
        assert not exit_reason_of(status, None, [ran], oom_killed=status == -signal.SIGTERM).is_suspect(ran)
    assert exit_reason_of(-signal.SIGSEGV, None, ()).suspected_keys == (), "an idle worker"


def test_a_stop_quarantines_its_culprit_unless_that_was_answered_meanwhile():
    culprit = run()
    stop = StopRequest("why", culprit, is_program_fault=True)
    assert exit_reason_of(-signal.SIGKILL, stop, ()).suspected_keys == ("diff",)
    culprit.answer.set_result(link_pb2.WorkerMessage())
    assert exit_reason_of(-signal.SIGKILL, stop, ()).suspected_keys == ()
    assert exit_reason_of(-signal.SIGKILL, StopRequest("why", run()), ()).suspected_keys == ()


def test_a_program_that_ran_before_is_above_suspicion_while_another_is_compiled():
    running, compiling, waiting = run("diff"), compilation("sum"), compilation("max", begun=False)
    assert suspects([waiting, running, compiling], ()) == [running, compiling]
    assert suspects([waiting, running, compiling], {"diff"}) == [compiling]
    assert suspects([waiting, running], {"diff"}) == [running]
    compiling.in_compiler_process = True
    assert suspects([waiting, running, compiling], {"diff"}) == [running]


def test_three_deaths_of_one_key_refuse_it_and_a_bounded_number_of_keys_is_kept():
    quarantine = Quarantine()
    for _ in range(3):
        quarantine.check("bad")
        quarantine.count("bad")
    quarantine.check("good")
    for i in range(5000):
        quarantine.count(f"key {i}")
        if i % 500 == 0:
            assert refusal(quarantine.check, "bad").reason is Reason.PROGRAM_REFUSED
    for _ in range(2):
        quarantine.count("key 0")  # its earlier death is forgotten
    quarantine.check("key 0")


def test_equal_compilations_have_one_key_and_others_have_others():
    def prepare(**fields) -> link_pb2.FrontEndMessage:
        return link_pb2.FrontEndMessage(call_id=1, prepare=link_pb2.Prepare(**fields))

    asked = prepare(strategy="halo")
    assert identify(asked) == identify(link_pb2.FrontEndMessage(call_id=2, prepare=asked.prepare))
    assert len({identify(asked), identify(prepare(strategy="gspmd")), identify(prepare())}) == 3
    assert identify(link_pb2.FrontEndMessage(execute=link_pb2.Execute(key_digest="k"))) == ("execute", "k", "")
    assert identify(link_pb2.FrontEndMessage(put_array=link_pb2.PutArray())) == ("put_array", "", "")


def test_pending_commands_are_listed_by_name_with_those_that_ran():
    pending_commands = PendingCommands()
    assert pending_commands.open(1, compilation("diff"))
    prepared = link_pb2.Prepared()
    prepared.plan.kernel, prepared.plan.key_digest = "diff", "key"
    pending_commands.answered(link_pb2.WorkerMessage(call_id=1, prepared=prepared))
    assert pending_commands.idle
    command = Command("execute", key="key")
    assert pending_commands.open(2, command)
    assert command.doing == "running kernel diff"
    pending_commands.answered(link_pb2.WorkerMessage(call_id=2, executed=link_pb2.Executed()))
    assert pending_commands.proven == {"key"}
    pending_commands.forget("key")
    assert pending_commands.proven == frozenset()
    assert pending_commands.open(3, Command("execute", key="key"))
    assert [lost.doing for lost in pending_commands.close()] == ["running kernel"]
    assert not pending_commands.open(4, command)


def test_only_faults_soon_after_the_start_count_as_short_sessions():
    mesh_history = MeshHistory()
    for short_sessions, end in enumerate([exit_reason_of(1, None, ()), exit_reason_of(-signal.SIGSEGV, None, ())], 1):
        mesh_history.record_ready()
        mesh_history.record_exit(end)
        assert mesh_history.short_sessions == short_sessions
    mesh_history.record_exit(exit_reason_of(1, None, ()))
    assert mesh_history.short_sessions == 2, "one that was never ready is counted as a start that failed"
    mesh_history.record_ready()
    mesh_history.record_exit(exit_reason_of(-signal.SIGKILL, None, ()))
    assert mesh_history.short_sessions == 0
    state = mesh_history.state(spare_ready=True)
    assert (state.ready, state.restarts, state.last_exit_reason) == (False, 4, "ended by signal 9 (SIGKILL)")
    assert state.spare_ready


ANSWER = link_pb2.WorkerMessage()
FAILED = link_pb2.WorkerMessage(failure=link_pb2.Failure(reason="OUT_OF_DEVICE_MEMORY", message="no memory"))
IDLE, BUSY = False, True


class Mesh:
    """Workers of a device each, and the commands that they have.

    All do nothing else and are on time, unless a test says by how much of every second they are late or at work.
    """

    def __init__(self, *commands: Command, workers: int = 2) -> None:
        self.commands = list(commands)
        self.late = [0.0] * workers
        self.at_work = [0.0] * workers
        self.workers = [SimpleNamespace(host=f"h{i}", data_link=None) for i in range(workers)]
        self.connections: Any = [
            SimpleNamespace(index=i, worker=worker, heartbeat=link_pb2.Heartbeat())
            for i, worker in enumerate(self.workers)
        ]
        self.ready: Future[link_pb2.Ready] = Future()
        devices = [server_info_service_pb2.Device(id=i, process_index=i) for i in range(workers)]
        self.ready.set_result(link_pb2.Ready(devices=devices, platform="cpu"))
        self.detector = StragglerDetector(self.connections, self.ready, limit_s=5.0)

    def checks(self, seconds: int) -> StopRequest | None:
        """Checks once a second, with heartbeats of every worker before each."""
        for _ in range(seconds):
            for connection in self.connections:
                connection.heartbeat = link_pb2.Heartbeat(
                    late_seconds=connection.heartbeat.late_seconds + self.late[connection.index],
                    cpu_seconds=connection.heartbeat.cpu_seconds + self.at_work[connection.index],
                )
            if (stop := self.detector.check(self.commands, 1.0)) is not None:
                return stop
        return None


def execution(*device_ids: int, name: str = "execute") -> Command:
    plan = kernel_pb2.Plan(mesh=mesh_pb2.Mesh(device_ids=device_ids)) if device_ids else None
    return Command(name, kernel="diff", plan=plan)


@rows(
    ("command", "answers", "late", "at_work"),
    [
        (execution(0), [1], [], []),  # host 0 alone takes part, and the other has no work
        (execution(name="start_profile"), [0], [], []),  # its files take as long as they take
        (execution(name="stop_profile"), [0], [], []),
        (execution(name="prepare"), [0], [], []),  # so do compilations
        (execution(0, 1), [], [0.0, 0.3], []),  # a slow network
        (execution(0, 1, 2), [], [0.3, 0.8, 0.9], []),  # a busy machine, where all are late alike
        (execution(0, 1), [], [0.0, 0.9], [0.0, 0.9]),  # Python's lock is held for long, by what makes a program, say
        (execution(0, 1), [], [0.0, 0.0, 1.0], []),  # a host without a part in it
        (None, [], [0.0, 1.0], []),  # no work
    ],
)
def test_nobody_is_stopped_who_keeps_no_other_waiting(command, answers, late, at_work):
    mesh = Mesh(*filter(None, [command]), workers=max(2, len(late)))
    mesh.late[: len(late)], mesh.at_work[: len(at_work)] = late, at_work
    for index in answers:
        command.answers[index] = ANSWER
    assert mesh.checks(100) is None


def test_nobody_is_behind_while_a_disk_is_read():
    reading, behind = execution(), execution()
    reading.reading |= {0: False, 1: True}
    behind.answers[0] = ANSWER
    mesh = Mesh(reading, behind)
    assert mesh.checks(30) is None
    reading.reading[1] = False
    assert mesh.checks(30) is not None


@rows(
    ("hosts", "before_s", "answers", "gathered", "borne_s", "behind"),
    [
        (2, 1, {0: ANSWER}, {}, 6, "h1 was 6 s"),
        (2, 20, {0: ANSWER}, {}, 21, "h1 was 21 s"),  # a host of half the speed is no fault
        (2, 0, {0: ANSWER}, {0: math.inf}, 6, "h1 was 6 s"),  # with its answer, all results of a worker are received
        (3, 0, {0: FAILED, 1: FAILED}, {}, 6, "h2 was 6 s"),  # of those that failed, none is the reason
    ],
)
def test_a_host_that_has_not_answered_what_others_have_is_stopped(hosts, before_s, answers, gathered, borne_s, behind):
    command = execution(*range(hosts))
    mesh = Mesh(command, workers=hosts)
    assert mesh.checks(before_s) is None
    command.answers.update(answers)
    command.gathered_bytes.update(gathered)
    assert mesh.checks(borne_s) is None
    assert mesh.checks(1) == StopRequest(f"{behind} behind the other hosts in running kernel diff")


def test_one_that_gets_on_is_not_behind():
    command = execution(0, 1)
    mesh = Mesh(command)
    command.answers[0] = ANSWER
    for second in range(20):
        command.gathered_bytes[1] = second
        assert mesh.checks(1) is None
    for parts in range(20):
        mesh.workers[1].data_link = SimpleNamespace(moved_for=lambda call_id, parts=parts: parts)
        assert mesh.checks(1) is None


def test_one_that_failed_while_the_others_wait_for_it_is_the_reason():
    """In a collective, the workers that did not fail cannot answer: they are not behind."""
    command = execution(0, 1)
    mesh = Mesh(command)
    command.answers[0] = FAILED
    assert mesh.checks(6) is None
    stop: Any = mesh.checks(1)
    assert (stop.reason, stop.culprit, stop.is_program_fault) == ("host h0 alone failed: no memory", command, True)
    assert stop.error.reason is Reason.OUT_OF_DEVICE_MEMORY


@rows("name", ["get_array", "save_array", "write_arrays"])
def test_one_that_failed_while_the_others_read_a_file_is_the_reason(name):
    command = execution(0, 1, name=name)
    command.reading |= {0: True, 1: True}
    mesh = Mesh(command)
    assert mesh.checks(30) is None
    command.answers[0] = FAILED
    stop: Any = mesh.checks(40)
    assert stop.reason == "host h0 alone failed: no memory"


@rows(
    ("what", "steps"),  # of a step: whether a command runs, by how much of every second h1 is late, seconds, the end
    [
        ("late from the beginning", [(BUSY, 0.9, 4, None), (BUSY, 0.9, 1, "h1 got almost no CPU time (late for 90%")]),
        ("late after a while", [(BUSY, 0.0, 60, None), (BUSY, 0.9, 2, None), (BUSY, 0.9, 2, "h1 got")]),
        (
            "late for one program after the other, each of which is answered in time",
            [*[(IDLE, 0.9, 5, None), (BUSY, 0.9, 1, None)] * 4, (BUSY, 0.9, 1, "h1 got")],
        ),
        ("late before a command, by a heartbeat on its way", [(IDLE, 100.0, 1, None), (BUSY, 100.0, 1, None)]),
        ("a single pause, which the front end may have shared", [(BUSY, 0.0, 20, None), (BUSY, 100.0, 1, None)]),
        ("a processor again in time", [(BUSY, 0.9, 2, None), (BUSY, 0.0, 10, None)] * 10),
        ("late long ago", [(BUSY, 0.9, 4, None), (IDLE, 0.0, 3600, None)]),
    ],
)
def test_a_host_without_cpu_time_is_stopped_though_all_wait_for_it(what, steps):
    mesh = Mesh()
    for is_busy, mesh.late[1], seconds, end in steps:
        mesh.commands[:] = [*mesh.commands, execution(0, 1)][:1] if is_busy else []
        stop: Any = mesh.checks(seconds)
        assert stop is None if end is None else stop.reason.startswith(end), what
    if steps[-1][-1] is None:
        mesh.commands[:], mesh.late[1] = [execution(0, 1)], 0.0
        assert mesh.checks(100) is None, what


def test_what_one_was_late_without_having_a_part_is_forgotten():
    mesh = Mesh(execution(0, 1), workers=3)
    mesh.late[2] = 0.9
    assert mesh.checks(20) is None
    mesh.late[2] = 0.0
    mesh.commands[:] = [execution(0, 1, 2)]
    assert mesh.checks(20) is None


def test_no_one_is_late_for_longer_than_was_looked():
    """Its heartbeats come once in 4 s, and checks four times a second."""
    mesh = Mesh(execution(0, 1))
    for moment in range(1, 200):
        if moment % 16 == 0:
            mesh.connections[1].heartbeat = link_pb2.Heartbeat(late_seconds=moment / 4 * 1.5)
        stop = mesh.detector.check(mesh.commands, 0.25)
        if stop is not None:
            assert "(late for 38% of the time)" in stop.reason
            return
    raise AssertionError("not noticed")


def test_several_that_get_no_processor_are_named():
    mesh = Mesh(execution(0, 1, 2), workers=3)
    mesh.late[:] = [0.9, 0.0, 0.75]
    stop: Any = mesh.checks(5)
    says = "h0 and h2 got almost no CPU time (late for 90% and 75% of the time) while running kernel diff"
    assert stop == StopRequest(says)


_BEATING = """
import socket, sys, time
from shardcall_server.link.framing import Link
from shardcall_server.mesh.heartbeat import start_heartbeats
start_heartbeats(Link(socket.socket(fileno=int(sys.argv[1]))), alone=False)
time.sleep(60)
"""


def test_a_process_that_was_stopped_says_for_how_long_and_that_it_did_not_work():
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen([sys.executable, "-c", _BEATING, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    link = Link(ours)
    try:
        heartbeats = (link_pb2.WorkerMessage.FromString(body).heartbeat for body, _ in link.frames())
        assert next(heartbeats).late_seconds == 0.0
        before = next(heartbeats)
        stop(process.pid)
        stopped = time.monotonic()
        time.sleep(0.5)
        stopped_s = time.monotonic() - stopped
        os.kill(process.pid, signal.SIGCONT)
        # Some may have been on their way before; and a nap may have been nearly over, or not.
        late_s = before.late_seconds + stopped_s - 0.1
        after = next((heartbeat for heartbeat in islice(heartbeats, 30) if heartbeat.late_seconds > late_s), None)
        assert after is not None, "none of 30 reports it"
        assert 0 < after.cpu_seconds - before.cpu_seconds < stopped_s
    finally:
        process.kill()
        process.wait()
        link.close()

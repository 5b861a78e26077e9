"""The watchdog's reasons to stop a worker: checks of a session whose time the tests set."""

from __future__ import annotations

import signal
from concurrent.futures import Future
from typing import Any

import pytest
from rows import rows
from server.refusals import refusal

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.workers.command import Command, identify, suspects
from shardcall_server.frontend.workers.exit_reason import StopRequest, exit_reason_of
from shardcall_server.frontend.workers.mesh_history import MeshHistory
from shardcall_server.frontend.workers.pending_commands import PendingCommands
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.watchdog import Watch, WatchLimits
from shardcall_worker.v1 import link_pb2

LIMITS = WatchLimits(silence_s=3, start_s=120, execute_s=60, compile_s=300, grace_s=5)


class Session:
    """Replaces the session and its one worker: the test sets the current command and its duration."""

    host = ""
    data_link: DataLink | None = None

    def __init__(self, *commands: Command, ready: bool = True) -> None:
        self.ready: Future[None] = Future()
        self.activity = 1
        self.has_unread = False
        self.cpu_ticks = 0
        self.heartbeat = link_pb2.Heartbeat()
        self.worker = self
        self.connections = (self,)
        self.open = list(commands)
        if ready:
            self.ready.set_result(None)

    def commands(self) -> list[Command]:
        return self.open


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


def looked_at(session: Session, seconds: int, watch: Watch | None = None) -> Any:
    """Checks a session with heartbeats, once a second; returns the request to stop, if there is one."""
    watch = watch or Watch(session, LIMITS, stood_by=False)
    for _ in range(seconds):
        session.activity += 1
        if (stop := watch.check(1.0)) is not None:
            return stop
    return None


def unheard(session: Session, seconds: int, *, stood_by: bool = False) -> StopRequest | None:
    watch = Watch(session, LIMITS, stood_by=stood_by)
    watch.check(1.0)
    return next((stop for _ in range(seconds) if (stop := watch.check(1.0))), None)


def test_a_program_may_run_up_to_the_limit():
    session = Session(command := run())
    assert looked_at(session, 61) is None
    stop = looked_at(session, 63)
    assert stop.reason == "running kernel diff took over 60 s"
    assert (stop.culprit, stop.is_program_fault, stop.error.reason) == (command, True, Reason.EXECUTE_LIMIT)


def test_a_programs_time_begins_when_the_one_before_is_answered():
    session = Session(run("long"), run("next"))
    watch = Watch(session, LIMITS, stood_by=False)
    assert looked_at(session, 50, watch) is None
    session.open.pop(0)
    assert looked_at(session, 60, watch) is None
    assert looked_at(session, 5, watch).culprit is session.open[0]


@rows("what", ["arrays are transferred", "a file is read"])
def test_the_time_of_transfers_is_not_the_programs(what):
    session = Session(command := run())
    watch = Watch(session, LIMITS, stood_by=False)
    command.reading[0] = what == "a file is read"
    session.data_link = None if command.reading[0] else DataLink()
    assert looked_at(session, 1000, watch) is None
    session.data_link, command.reading[0] = None, False
    assert looked_at(session, 60, watch) is None
    assert looked_at(session, 3, watch) is not None


def test_a_program_without_callers_is_stopped_after_the_grace_and_not_quarantined():
    session = Session(run(needed=False))
    assert looked_at(session, 6) is None
    stop = looked_at(session, 7)
    assert (stop.culprit, stop.error, stop.is_program_fault) == (session.open[0], None, False)


def test_a_program_without_callers_stops_nothing_while_another_runs():
    session = Session(run("long"), run("left", needed=False))
    watch = Watch(session, LIMITS, stood_by=False)
    assert looked_at(session, 40, watch) is None
    session.open.pop(0)
    assert looked_at(session, 6, watch) is None, "its grace begins when it does"
    assert looked_at(session, 1, watch) is not None


def test_a_compilation_is_counted_from_its_beginning():
    waiting = compilation(begun=False)
    session = Session(waiting)
    watch = Watch(session, LIMITS, stood_by=False)
    assert looked_at(session, 1000, watch) is None
    waiting.compiling = True
    assert looked_at(session, 305, watch) is None
    stop = looked_at(session, 2, watch)
    assert (stop.culprit, stop.is_program_fault, stop.error.reason) == (waiting, True, Reason.COMPILE_LIMIT)


def test_three_seconds_without_a_heartbeat_are_too_many():
    assert unheard(Session(), 3) is None
    assert unheard(Session(), 4) == StopRequest("the worker did not answer for 4 s")


def test_heartbeats_that_wait_to_be_read_count():
    session = Session()
    session.has_unread = True
    assert unheard(session, 100) is None


def test_a_worker_that_works_may_be_late_but_not_for_ever():
    def silent(seconds: int) -> StopRequest | None:
        session = Session()
        watch = Watch(session, LIMITS, stood_by=False)
        watch.check(1.0)
        for _ in range(seconds):
            session.cpu_ticks += 1
            if (stop := watch.check(1.0)) is not None:
                return stop
        return None

    assert silent(30) is None
    assert silent(31) == StopRequest("the worker did not answer for 31 s")


def test_a_worker_may_be_silent_while_it_starts_but_not_for_ever():
    assert unheard(Session(ready=False), 119) is None
    assert unheard(Session(ready=False), 121) == StopRequest("the worker was not ready within 120 s")


def test_a_worker_that_stood_by_answers_at_once():
    session = Session(ready=False)
    assert session.activity == 1, "that it stood by"
    assert unheard(session, 4, stood_by=True) == StopRequest("the worker did not answer for 4 s")
    assert unheard(session, 3) is None


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
    for status in (-signal.SIGTERM, -signal.SIGKILL):
        assert not exit_reason_of(status, None, [ran], oom_killed=status == -signal.SIGTERM).is_suspect(ran)


def test_the_exit_of_an_idle_worker_quarantines_nothing():
    assert exit_reason_of(-signal.SIGSEGV, None, ()).suspected_keys == ()


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


def test_three_deaths_of_one_key_refuse_it_and_no_other():
    quarantine = Quarantine()
    for _ in range(3):
        quarantine.check("bad")
        quarantine.count("bad")
    quarantine.check("good")
    assert refusal(quarantine.check, "bad").reason is Reason.PROGRAM_REFUSED


def test_the_quarantine_is_bounded_and_keeps_recent_programs():
    quarantine = Quarantine()
    for _ in range(3):
        quarantine.count("bad")
    for i in range(5000):
        quarantine.count(f"key {i}")
        if i % 500 == 0:
            with pytest.raises(CallError):
                quarantine.check("bad")
    for _ in range(2):
        quarantine.count("key 0")  # its earlier death is forgotten
    quarantine.check("key 0")


def test_equal_compilations_have_one_key_and_others_have_others():
    def prepare(**fields) -> link_pb2.FrontEndMessage:
        return link_pb2.FrontEndMessage(call_id=1, prepare=link_pb2.Prepare(**fields))

    asked = prepare(strategy="halo")
    again = link_pb2.FrontEndMessage(call_id=2, prepare=asked.prepare)
    assert identify(asked) == identify(again)
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

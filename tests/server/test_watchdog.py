"""The watchdog's reasons to stop a worker: checks of a session whose time the tests set."""

from __future__ import annotations

import signal
from concurrent.futures import Future
from typing import Any

from rows import rows
from server.refusals import refusal

from shardcall_core.call_error import Reason
from shardcall_server.frontend.workers.command import Command, identify, suspects
from shardcall_server.frontend.workers.exit_reason import StopRequest, exit_reason_of
from shardcall_server.frontend.workers.mesh_history import MeshHistory
from shardcall_server.frontend.workers.pending_commands import PendingCommands
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.watchdog import Watch, WatchLimits
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


@rows("what", ["arrays are transferred", "a file is read"])
def test_the_time_of_transfers_is_not_the_programs(what):
    session = Session(command := run())
    command.reading[0] = what == "a file is read"
    session.data_link = None if command.reading[0] else DataLink()
    assert session.stop(1000) is None
    session.data_link, command.reading[0] = None, False
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

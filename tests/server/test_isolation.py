"""Programs that may have ended a mesh run alone; a client whose programs ended three gets only those that have run."""

import signal

import pytest
from server.conftest import refused
from server.fake_calls import Clock
from server.fake_workers import PATIENCE_S, FakeWorker, but, execution

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.workers.command import Command
from shardcall_server.frontend.workers.isolation import IsolatedError, Isolation
from shardcall_server.frontend.workers.probation import Probation
from shardcall_server.frontend.workers.quarantine import Quarantine


def command(key: str, owner: str = "", *, is_alone: bool = False) -> Command:
    return Command("execute", key=key, owner=owner, is_alone=is_alone)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def isolation(clock: Clock) -> Isolation:
    suspicious = Isolation(clock)
    suspicious.suspect([command("a", "ann"), command("b", "bob")])
    return suspicious


def admits(isolation: Isolation, key: str, *pending: Command, owner: str = "", is_new: bool = False) -> bool | None:
    """Returns whether the command is to be alone; None if it must wait."""
    try:
        return isolation.admit(key, owner, pending, is_new=is_new)
    except IsolatedError:
        return None


def test_a_suspect_is_sent_alone_and_nothing_beside_it(isolation):
    assert admits(isolation, "a") is True
    assert admits(isolation, "a", command("other")) is None
    assert admits(isolation, "a", command("")) is True, "a command of no program is no suspect"
    assert admits(isolation, "other", command("a", is_alone=True)) is None
    assert admits(isolation, "b", command("a", is_alone=True)) is None


def test_a_suspect_that_waits_is_not_overtaken_unless_it_gave_up(isolation, clock):
    assert admits(isolation, "a", command("other")) is None
    assert admits(isolation, "other", command("other")) is None
    assert admits(isolation, "b") is None
    clock.now += 3.0
    assert admits(isolation, "other", command("other")) is False


def test_new_programs_of_a_suspects_owner_run_alone_for_a_while(isolation, clock):
    assert admits(isolation, "new", owner="ann", is_new=True) is True
    assert admits(isolation, "known", owner="ann") is False
    assert admits(isolation, "new", owner="eve", is_new=True) is False
    clock.now += 601.0
    assert admits(isolation, "new", owner="ann", is_new=True) is False
    assert admits(isolation, "a") is False
    assert not isolation.is_active


def test_those_that_wait_are_woken_once_and_a_suspect_that_was_answered_is_none_any_more(isolation):
    with pytest.raises(IsolatedError) as caught:
        isolation.admit("a", "", [command("other")], is_new=False)
    isolation.clear("a")
    isolation.wake()
    assert caught.value.changed.done()
    isolation.wake()
    assert admits(isolation, "a", command("other")) is False


def test_only_what_was_alone_counts_for_its_program_and_its_owner():
    quarantine = Quarantine()
    for _ in range(5):
        quarantine.record_exit([command("a", "ann"), command("b", "bob")])
    quarantine.check("a", "ann")
    quarantine.check("b", "bob")
    assert quarantine.isolation.is_active
    quarantine.record_exit([command("", "cat"), command("c", "cat")])
    assert quarantine._deaths == {"c": 1}


def test_a_session_sends_a_suspect_when_it_is_idle(run):
    mesh = run(worker := FakeWorker("", but("execute")))
    session = mesh.session
    session.quarantine.isolation.suspect([command("a"), command("b")])
    before = mesh.execute("other")
    with pytest.raises(IsolatedError) as caught:
        mesh.execute("a")
    assert session.command_if_idle(execution("a")) is None
    worker.say(1, executed={})
    before.result(PATIENCE_S)
    caught.value.changed.result(PATIENCE_S)
    alone = mesh.execute("a")
    with pytest.raises(IsolatedError) as caught:
        mesh.execute("other")
    worker.die(-signal.SIGABRT)
    assert mesh.exit_reason.result(PATIENCE_S).suspected_keys == ("a",)
    caught.value.changed.result(PATIENCE_S)
    assert alone.exception(PATIENCE_S) is not None
    assert session.quarantine._deaths == {"a": 1}


def test_three_exits_within_ten_minutes_begin_a_probation_that_ends(clock):
    probation = Probation(clock)
    for clock.now in (0.0, 100.0, 500.0):
        probation.check("ann")
        probation.count("ann")
    clock.now = 800.5
    with refused(Reason.PROGRAM_REFUSED, "3 times within 10 minutes; for another 300 s, only programs") as caught:
        probation.check("ann")
    assert caught.value.metadata["ends_in_seconds"] == "300"
    probation.check("bob")
    clock.now = 1101.0
    probation.check("ann")


def test_exits_that_are_far_apart_do_not_count_together_and_owners_are_bounded(clock):
    probation = Probation(clock)
    for clock.now in (0.0, 300.0, 601.0):
        probation.count("ann")
    probation.check("ann")
    clock.now = 650.0
    probation.count("ann")
    with pytest.raises(CallError):
        probation.check("ann")
    for number in range(5000):
        probation.count(str(number))
    assert len(probation._exits) <= 1024


def test_programs_that_have_run_before_are_run_and_others_refused():
    quarantine = Quarantine()
    quarantine.record_answer("ran")
    for key in ("x", "y", "z"):
        quarantine.record_exit([Command("execute", key=key, owner="ann")])
    quarantine.check("ran", "ann")
    quarantine.check("", "ann")
    with pytest.raises(CallError):
        quarantine.check("new", "ann")
    quarantine.check("new", "bob")
    quarantine.record_exit([Command("execute", key="ran", owner="bob")])
    with pytest.raises(CallError):
        quarantine.check("ran", "ann")

"""A client whose programs ended three meshes in ten minutes gets only programs that have run, for ten minutes."""

import pytest
from server.fake_calls import Clock
from server.refusals import refused

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.workers.command import Command
from shardcall_server.frontend.workers.probation import Probation
from shardcall_server.frontend.workers.quarantine import Quarantine


def test_three_exits_within_ten_minutes_begin_a_probation_that_ends():
    clock = Clock()
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


def test_exits_that_are_far_apart_do_not_count_together_and_owners_are_bounded():
    clock = Clock()
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

"""Scheduling of the mesh: fair between clients, the most urgent first, and never beyond its capacity."""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import rows
from server.conftest import on_threads
from server.fake_calls import FakeServerCall, RunningStage

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.dispatch.mesh_queue import LaunchGrant, MeshQueue
from shardcall_server.frontend.memory.device_budget import DeviceBudget
from shardcall_server.frontend.rpc.fair_queue import FairQueue


class Caller(FakeServerCall):
    """A call in the queue: it waits until it is granted the mesh, or leaves."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        assert name == "queue"
        return nullcontext()

    def ask(self, queue: MeshQueue, device_bytes: int = 0, **options: float) -> Caller:
        """Asks for a grant; returns when it has one, was refused or waits."""
        running = RunningStage(queue.acquire(self, device_bytes, **options))  # type: ignore[arg-type]
        self.grant: Future[LaunchGrant] = running.result
        self.leave = running.interrupt
        return self


def make(launched: int = 1, queued: int = 100, per_client: int = 100, limit: int = 1000, held: int = 0) -> MeshQueue:
    return MeshQueue(launched, queued, per_client, DeviceBudget(lambda: limit, lambda: held))


def refusal(caller: Caller) -> CallError:
    error = caller.grant.exception(30)
    assert isinstance(error, CallError)
    return error


def release(*callers: Caller) -> None:
    """Waits for the grants of callers, one after the other, and gives them back."""
    for caller in callers:
        caller.grant.result(30).release()


def line_of(*waiting: Caller) -> FairQueue[Caller]:
    line: FairQueue[Caller] = FairQueue()
    for one in waiting:
        line.add(one)
    return line


def served(line: FairQueue[Caller]) -> list[Caller]:
    return [line.pop() for _ in range(len(line))]


@rows(
    ("names", "weights", "order"),
    [
        ("a1 a1 a1 a1 a1 a1 b1 b1 c1", {}, "a1 b1 c1 a1 b1 a1 a1 a1 a1"),
        ("a1 a1 a1 a1 a1 a1 b1 b1 b1 c1 c1", {"a": 2}, "a1 a1 b1 c1 a1 a1 b1 c1 a1 a1 b1"),
        ("a1 a1 a1 a2 b3 b3", {}, "a1 b3 a2 b3 a1 a1"),
    ],
)
def test_owners_alternate_by_their_weights_and_connections_within_their_grants(names, weights, order):
    line = line_of(*(Caller(*name, weight=weights.get(name[0], 1)) for name in names.split()))
    assert [f"{one.owner}{one.connection}" for one in served(line)] == order.split()


@given(st.lists(st.integers(1, 100), min_size=2, max_size=4))
def test_owners_with_enough_waiters_are_served_their_weights_in_a_round(weights):
    line = line_of(*(Caller(str(i), weight=weight) for i, weight in enumerate(weights) for _ in range(3 * weight)))
    for _ in range(3):
        counts = Counter(line.pop().owner for _ in range(sum(weights)))
        assert counts == {str(owner): weight for owner, weight in enumerate(weights)}
    assert not line


def test_an_owner_that_had_no_waiters_begins_a_round_behind_the_others():
    line = line_of(Caller("a", weight=3), Caller("b"), Caller("b"))
    assert line.pop().owner == "a"  # its last
    for _ in range(4):
        line.add(Caller("a", weight=3))
    assert "".join(waiting.owner for waiting in served(line)) == "baaaba"
    line = line_of(*(Caller("a", weight=weight) for weight in (3, 3, 1, 1)), Caller("b"), Caller("b"))
    assert "".join(waiting.owner for waiting in served(line)) == "aaabab", "a weight that changes counts at once"


@rows("weights", [(1, 1, 1), (2, 1, 3), (3, 2, 1), (4, 4, 1)])
def test_a_position_is_that_in_which_calls_are_served(weights):
    weight_of = dict(zip("abc", weights, strict=True))
    names = ("a1", "a1", "b1", "a2", "b1", "c1", "b2", "a1", "c2", "c1")
    waiting = [Caller(*name, weight=weight_of[name[0]]) for name in names]
    line = line_of(*waiting)
    line.take(waiting[0])
    positions = {id(one): line.position(one) for one in waiting}
    assert positions.pop(id(waiting[0])) == 0
    assert [positions[id(one)] for one in served(line)] == [*range(1, len(names))]


def test_the_mesh_is_granted_by_the_weights_of_clients_in_the_order_of_the_positions_that_the_queue_lists():
    queue = make()
    first = Caller().ask(queue)
    asked = [Caller(owner, weight=weight).ask(queue) for owner, weight in [("a", 2)] * 4 + [("b", 1)] * 2]
    listed = queue.waiting()
    assert [call for call, _, _ in listed] == asked
    waiting: list[Any] = sorted(listed, key=lambda one: one[1])
    assert [(call.owner, position) for call, position, _ in waiting] == [*zip("aabaab", range(1, 7), strict=True)]
    release(first, *(call for call, _, _ in waiting))
    assert not [position for _, position, _ in queue.waiting() if position]


def test_of_one_connection_the_nearest_deadline_comes_first_and_who_leaves_takes_no_grant():
    waiting = [Caller(deadline=deadline) for deadline in (3.0, 1.0, 2.0, 1.0)]
    assert served(line_of(*waiting)) == [waiting[1], waiting[3], waiting[2], waiting[0]]
    first, second, other = Caller("a", deadline=1.0), Caller("a", deadline=2.0), Caller("b")
    line = line_of(first, second, other)
    assert line.remove(first)
    assert not line.remove(first)
    assert line.count("a") == 1
    assert served(line) == [second, other]
    assert line.peek() is None
    with pytest.raises(KeyError):
        line.pop()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abc"), st.sampled_from("12"), st.integers(0, 3)),  # one comes
            st.just(None),  # one is served
            st.integers(0, 1000),  # one leaves
        ),
        min_size=20,  # of shorter ones few serve one owner twice
        max_size=60,
    )
)
def test_every_call_is_served_once_and_no_owner_waits_for_more_than_one_grant_of_any_other(steps):
    line: FairQueue[Caller] = FairQueue()
    there: list[Caller] = []
    since: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))  # an owner's wait: grants of the others
    for step in steps:
        if isinstance(step, tuple):
            waiting = Caller(step[0], step[1], deadline=step[2])
            line.add(waiting)
            there.append(waiting)
        elif step is None and there:
            first = line.peek()
            waiting = line.pop()
            assert waiting is first
            peers = [one for one in there if (one.owner, one.connection) == (waiting.owner, waiting.connection)]
            assert waiting.deadline == min(one.deadline for one in peers)
            there.remove(waiting)
            since.pop(waiting.owner, None)
            for owner in {one.owner for one in there} - {waiting.owner}:
                since[owner][waiting.owner] += 1
                assert since[owner][waiting.owner] <= 1
        elif step is not None and there:
            waiting = there.pop(step % len(there))
            assert line.remove(waiting)
            if all(one.owner != waiting.owner for one in there):
                since.pop(waiting.owner, None)
        assert len(line) == len(there)
        assert all(line.count(owner) == sum(one.owner == owner for one in there) for owner in "abc")
    assert {id(one) for one in served(line)} == {id(one) for one in there}


def test_a_call_that_finds_capacity_goes_through_on_the_thread_of_its_caller():
    queue = make(launched=2)
    grants = [caller.run(queue.acquire(caller)) for caller in (Caller(), Caller())]  # type: ignore[arg-type]
    assert queue.launched == 2
    for grant in grants:
        grant.release()
        grant.release()
    assert queue.launched == 0


def test_the_queue_is_bounded_in_all_and_by_client():
    queue = make(queued=3, per_client=2)
    for _ in range(3):
        Caller().ask(queue)
    refused = refusal(Caller().ask(queue))
    assert (refused.reason, refused.metadata["limit"]) == (Reason.QUOTA_EXCEEDED, "max_queued_calls_per_client")
    Caller("b").ask(queue)
    full = refusal(Caller("b").ask(queue))
    assert (full.reason, full.metadata["limit"]) == (Reason.SERVER_BUSY, "max_queued_calls")
    Caller("c").ask(queue)  # the first of its client
    Caller().ask(queue, again=True)  # had a grant before, on a mesh that ended
    assert queue.queued == 5


def test_programs_wait_for_the_devices_memory_in_order_and_not_for_a_large_one_that_leaves():
    queue = make(launched=8, limit=100)
    first = Caller().ask(queue, 60)
    large, small = Caller(deadline=1.0).ask(queue, 50), Caller(deadline=2.0).ask(queue, 10)
    assert (queue.queued, queue.budget.program_bytes) == (2, 60)
    release(first)
    for caller in (large, small):
        caller.grant.result(30)
    assert queue.budget.program_bytes == 60
    release(large, small)
    assert queue.budget.program_bytes == 0
    Caller().ask(queue, 60)
    large, small = Caller(deadline=1.0).ask(queue, 50), Caller(deadline=2.0).ask(queue, 10)
    large.leave()
    small.grant.result(30)
    assert queue.queued == 0


def test_a_loop_keeps_its_memory_between_grants():
    queue = make(launched=8, limit=100)
    grant = Caller().ask(queue, 60).grant.result(30)
    memory = grant.memory()
    waiting = Caller().ask(queue, 50)
    grant.release()
    release(Caller().ask(queue))  # as a later slice
    assert (queue.budget.program_bytes, waiting.grant.done()) == (60, False)
    memory.release()
    release(waiting)
    assert (queue.launched, queue.budget.program_bytes) == (0, 0)


def test_what_can_never_fit_is_refused_with_the_bytes_that_are_missing():
    queue = make(limit=100, held=30)
    error = refusal(Caller().ask(queue, 80))
    assert error.reason is Reason.OUT_OF_DEVICE_MEMORY
    assert error.metadata["missing_bytes"] == "10"
    assert "10 bytes are missing" in error.message
    with pytest.raises(CallError, match="10 bytes are missing"):
        queue.check(80)
    queue.check(70)
    assert (queue.launched, queue.queued, queue.budget.program_bytes) == (0, 0, 0)


def test_small_calls_count_as_a_part_except_in_a_queue_of_one():
    queue = make(launched=2)
    first = Caller().ask(queue)
    small = [Caller().run(queue.acquire(Caller(), share=0.25)) for _ in range(4)]  # type: ignore[arg-type]
    waiting = Caller().ask(queue)
    for grant in small[:3]:
        grant.release()
    assert not waiting.grant.done()
    small[3].release()
    release(first, waiting)
    assert (queue.launched, queue.queued) == (0, 0)
    queue = make(launched=1)
    one, other = (Caller().ask(queue, share=0.25) for _ in range(2))
    assert queue.queued == 1
    release(one, other)
    assert (queue.launched, queue.queued) == (0, 0)


def test_one_client_has_two_slow_calls_launched_and_others_pass_those_that_wait():
    queue = make(launched=8)
    slow = [Caller("a", str(i % 2), deadline=i).ask(queue, is_slow=True) for i in range(5)]
    assert [caller.grant.done() for caller in slow] == [True, True, False, False, False]
    quick = [Caller(owner, "1", deadline=9.0).ask(queue) for owner in ("b", "a", "c")]
    other = [Caller("b").ask(queue, is_slow=True) for _ in range(3)]
    assert all(caller.grant.done() for caller in quick)
    assert [caller.grant.done() for caller in other] == [True, True, False]
    assert (queue.launched, queue.queued) == (7.0, 4)
    release(slow[0])
    assert slow[2].grant.result(30)
    assert [caller.grant.done() for caller in (slow[3], slow[4], other[2])] == [False] * 3
    slow[3].leave()
    assert refusal(slow[3]).reason == Reason.CANCELLED
    release(slow[1], slow[2])
    assert slow[4].grant.result(30)
    release(*other[:2], *quick, slow[4], other[2])
    assert (queue.launched, queue.queued) == (0.0, 0)


def test_a_caller_waiting_for_memory_that_arrays_take_gets_an_error():
    held = [0]
    queue = MeshQueue(8, 100, 100, DeviceBudget(lambda: 100, lambda: held[0]))
    first = Caller().ask(queue, 60)
    waiting, behind = Caller(deadline=1.0).ask(queue, 60), Caller(deadline=2.0).ask(queue)
    held[0] = 50
    first.grant.result(30).release()
    assert refusal(waiting).metadata["missing_bytes"] == "10"
    behind.grant.result(30)


def test_callers_that_come_and_leave_at_any_moment_leave_no_grant_behind():
    queue = make(launched=1)
    numbers, reasons = itertools.count(), set[Reason]()

    def come(owner: str) -> None:
        for _ in range(100):
            callers = [Caller(owner, deadline=time.monotonic()).ask(queue, 1) for _ in range(2)]
            if next(numbers) % 3 == 0:
                callers[1].leave()
            for caller in callers:
                if caller.grant.exception(30) is None:
                    release(caller)
                else:
                    reasons.add(refusal(caller).reason)

    on_threads(come, "aabbcc")
    assert reasons == {Reason.CANCELLED}
    assert (queue.launched, queue.queued, queue.budget.program_bytes) == (0, 0, 0)


def test_no_call_waits_for_memory_that_no_program_holds():
    """Arrays that come between the two checks of the memory must not leave a call waiting at the head of the queue."""
    held = itertools.chain([0], itertools.repeat(500))
    queue = MeshQueue(1, 100, 100, DeviceBudget(lambda: 1000, lambda: next(held)))
    assert Caller().ask(queue, 800).grant.result(30).device_bytes == 800

"""Admission: slots that are granted, waits and refusals."""

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from rows import rows
from server.fake_calls import FakeServerCall, RunningStage

from server import conftest as refusals
from shardcall_core.call_error import CallError
from shardcall_server.frontend.rpc.admission import RESERVED_SLOTS, Admission, Slots
from shardcall_server.frontend.rpc.coroutines import Waiting


class Caller(FakeServerCall):
    """A call that may have to wait.

    Attributes:
        waits: done when it waits.
    """

    def __init__(self, owner: str, connection: str = "here") -> None:
        super().__init__(owner, connection)
        self.waits: Future[Future[None]] = Future()

    def block(self, waiting: Waiting) -> None:
        self.waits.set_result(waiting[0])
        super().block(waiting)


def slots(total: int = 4, per_client: int = 3, per_connection: int = 2) -> Slots:
    return Slots("works on", "limit", total, per_client, per_connection)


def take(of: Slots, *owners: str) -> list[Any]:
    callers: list[Any] = [Caller(owner, f"{owner} {i}") for i, owner in enumerate(owners)]
    for caller in callers:
        of.acquire(caller)
    return callers


def refusal(of: Slots, caller: Any) -> str:
    error = refusals.refusal(of.acquire, caller)
    return f"{error.reason} {error.metadata['limit']}"


def test_every_limit_names_itself_and_a_client_without_a_slot_gets_one_though_all_are_taken():
    some = slots()
    take(some, "a")
    for connection, limit in (("a 0", "limit_per_connection"), ("another", "limit_per_client")):
        some.acquire(Caller("a", connection))  # type: ignore[arg-type]
        assert refusal(some, Caller("a", connection)) == f"QUOTA_EXCEEDED {limit}"
    take(some, "b")
    assert refusal(some, Caller("b")) == "SERVER_BUSY limit"
    take(some, *map(str, range(RESERVED_SLOTS)))
    assert refusal(some, Caller("last")) == "SERVER_BUSY limit"


def test_a_call_that_arrives_has_no_call_slot():
    admission = Admission(2, 2, 2)
    calls: list[Any] = [Caller("a") for _ in range(2)]
    with ExitStack() as arriving:
        for call in calls:
            arriving.enter_context(admission.admitted(call, needs_slot=True))
        with pytest.raises(CallError, match="receives the operands of 2 calls"):
            arriving.enter_context(admission.admitted(calls[0], needs_slot=True))
    with admission.admitted(calls[0], needs_slot=True) as one, admission.admitted(calls[1], needs_slot=True) as two:
        one(False)
        two(False)
        with admission.admitted(calls[0], needs_slot=True):
            assert admission.call_count == 3
    assert admission.call_count == 0


def test_a_call_waits_for_the_slots_of_its_client_and_is_refused_if_that_has_none():
    admission = Admission(2, 2, 2)
    first, second = Caller("a"), Caller("a")
    with ThreadPoolExecutor(1) as pool, ExitStack() as waiting:
        with admission.admitted(first, needs_slot=True) as one, admission.admitted(first, needs_slot=True) as another:
            one(False)
            another(False)
            waits = pool.submit(waiting.enter_context(admission.admitted(second, needs_slot=True)), False)
            second.waits.result(60)
        waits.result(60)
    with ExitStack() as others:
        for i in range(2 + RESERVED_SLOTS):
            others.enter_context(admission.admitted(Caller(str(i)), needs_slot=True))(False)
        last = others.enter_context(admission.admitted(Caller("last"), needs_slot=True))
        with pytest.raises(CallError, match="works on 2 calls"):
            last(False)
    assert admission.call_count == 0


def test_other_calls_of_a_connection_do_not_wait_behind_all_of_its_call_stream():
    some, admitted = slots(per_connection=1), []
    held: Any = Caller("a")
    some.acquire(held)
    for caller, is_streamed in ((Caller("a"), True), (streamed := Caller("a"), True), (read := Caller("a"), False)):
        waiting_task(some, caller, admitted, is_streamed=is_streamed)
    for _ in range(2):
        some.release(held)
    assert read in admitted
    assert streamed not in admitted
    some.release(read)
    assert streamed in admitted  # a task that waits for ever would end in the collection of a later test


def waiting_task(some: Slots, caller: Any, admitted: list[Any], *, is_streamed: bool = False) -> RunningStage:
    async def stage() -> None:
        await some.wait(caller, is_streamed=is_streamed)
        admitted.append(caller)

    return RunningStage(stage())


def test_waiting_calls_get_slots_one_connection_after_the_other():
    some = slots(total=3, per_client=3, per_connection=3)
    holders, admitted = take(some, *"aaa"), []
    for name in "1112233":
        waiting_task(some, Caller("a", name), admitted)
    for holder in holders:
        some.release(holder)
    assert [caller.connection for caller in admitted] == ["1", "2", "3"]
    while some.taken:
        some.release(admitted[len(admitted) - some.taken])
    assert [caller.connection for caller in admitted] == list("1231231")


@rows("has_others", [True, False])
def test_a_waiting_call_that_is_interrupted_leaves_its_slot_to_those_behind_it(has_others):
    some, admitted = slots(total=1, per_client=1), []
    (holder,) = take(some, "a")
    leaver = waiting_task(some, Caller("a", "1"), admitted)
    behind: list[Any] = [Caller("a", "1")] * has_others
    for caller in behind:
        waiting_task(some, caller, admitted)
    leaver.interrupt()
    some.release(holder)
    assert admitted == behind
    assert some.taken == len(behind)


def test_a_release_checks_a_number_of_waiting_calls_that_does_not_grow_with_their_number():
    checked = []

    class CountingCaller(Caller):
        """A caller that counts the reads of its owner."""

        owner = property(lambda self: checked.append(self) or "a", lambda self, owner: None)  # type: ignore[assignment]

    some, admitted, number = slots(total=1, per_client=1, per_connection=1), [], 1000
    (holder,) = take(some, "a")
    for i in range(number):
        waiting_task(some, CountingCaller("a", str(i % 2)), admitted)
    some.release(holder)
    for i in range(number):
        some.release(admitted[i])
    assert len(admitted) == number
    assert some.taken == 0
    assert len(checked) < 20 * number

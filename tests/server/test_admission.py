"""Admission: slots that are granted, waits and refusals."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.rpc.admission import RESERVED_SLOTS, Admission, Slots


@dataclass
class Caller:
    """The part of a call that slots read."""

    owner: str
    connection: str = "here"
    waits: Future[Future[None]] = field(default_factory=Future)
    leaves: bool = False

    def wait(self, shared: Future[None], doing: str) -> None:
        self.waits.set_result(shared)
        if self.leaves:
            raise CallError(Reason.CANCELLED, doing)
        shared.result(60)


def slots(total: int = 4, per_client: int = 3, per_connection: int = 2) -> Slots:
    return Slots("works on", "limit", total, per_client, per_connection)


def take(of: Slots, *owners: str) -> list[Any]:
    callers: list[Any] = [Caller(owner, f"{owner} {i}") for i, owner in enumerate(owners)]
    for caller in callers:
        of.acquire(caller)
    return callers


def refusal(of: Slots, caller: Any) -> str:
    with pytest.raises(CallError) as caught:
        of.acquire(caller)
    return f"{caught.value.reason} {caught.value.metadata['limit']}"


def test_each_limit_names_itself():
    some = slots()
    take(some, "a")
    some.acquire(Caller("a", "a 0"))  # type: ignore[arg-type]
    assert refusal(some, Caller("a", "a 0")) == "QUOTA_EXCEEDED limit_per_connection"
    some.acquire(Caller("a", "another"))  # type: ignore[arg-type]
    assert refusal(some, Caller("a", "another")) == "QUOTA_EXCEEDED limit_per_client"


def test_a_client_without_a_slot_gets_one_though_all_are_taken():
    some = slots()
    take(some, *"aaab")
    assert refusal(some, Caller("b")) == "SERVER_BUSY limit"
    take(some, *map(str, range(RESERVED_SLOTS)))
    assert refusal(some, Caller("last")) == "SERVER_BUSY limit"


def test_waiting_callers_get_slots_in_order_as_others_release_them():
    some = slots()
    a, *_ = take(some, *"aaab")
    first: Any = Caller("a")
    second: Any = Caller("b")
    with ThreadPoolExecutor(2) as pool:
        waiting = []
        for caller in (first, second):
            waiting.append(pool.submit(some.wait, caller))
            caller.waits.result(60)
        some.release(a)
        waiting[0].result(60)
        assert not waiting[1].done()
        some.release(first)
        waiting[1].result(60)
    assert some.taken == 4


def test_a_call_that_leaves_while_it_waits_takes_nothing():
    some = slots()
    (*_, b) = take(some, *"aaab")
    leaver: Any = Caller("b", leaves=True)
    with pytest.raises(CallError):
        some.wait(leaver)
    some.release(b)
    assert some.taken == 3


def test_a_call_that_arrives_has_no_call_slot():
    admission = Admission(2, 2, 2)
    calls: list[Any] = [Caller("a") for _ in range(2)]
    with ExitStack() as arriving:
        for call in calls:
            arriving.enter_context(admission.admitted(call, works=True))
        with pytest.raises(CallError, match="receives the operands of 2 calls"):
            arriving.enter_context(admission.admitted(calls[0], works=True))
    with admission.admitted(calls[0], works=True) as one, admission.admitted(calls[1], works=True) as two:
        one(False)
        two(False)
        with admission.admitted(calls[0], works=True) as three:
            assert admission.calls == 3
            with pytest.raises(CallError, match="works on 2 calls"):
                three(False)
    assert admission.calls == 0

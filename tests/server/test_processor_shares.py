"""The processor time and the memory that calls are charged in the front end."""

from types import SimpleNamespace
from typing import Any, cast

from server.conftest import refusal

from shardcall_core.call_error import Reason
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.services.interceptor import Charges


def test_a_client_that_uses_more_than_its_share_waits_unless_it_is_alone():
    now, waited, used_s = [0.0], [], 0.0
    shares = ProcessorShares(lambda: now[0], waited.append)
    greedy = shares.of("greedy")
    for step in range(100):
        shares.of(f"client {step}").spend(0.001)  # of those that have left, some are forgotten
        now[0] += 2.0
    assert len(shares._by_client) < 70
    for _ in range(100):
        greedy.spend(1.0)
        now[0] += 1.0
        greedy.wait()
    assert not waited
    for _ in range(1000):
        shares.of("modest").spend(0.002)
        now[0] += 0.01
        assert not shares.of("modest").pause_s()
        if not greedy.pause_s():
            greedy.spend(0.01)
            used_s += 0.01
    assert 2.8 < used_s < 4.0  # a third of ten seconds
    greedy.spend(60.0)
    with greedy.meter() as meter:
        assert [*meter.paced(iter([1]))] == [1]
    assert waited == [1.0] * 20  # this clock stands still


def test_answers_count_in_the_budget_of_their_client():
    budget, ended = MemoryBudget(10 << 10, 10 << 10), []
    call = cast(Any, SimpleNamespace(owner="ann", when_ended=ended.append))
    charges = Charges(ProcessorShares(), budget)
    charges.hold(call, bytes(4 << 10))
    charges.hold(call, bytes(8 << 10))
    assert refusal(charges.hold, call, bytes(8 << 10)).reason is Reason.QUOTA_EXCEEDED
    (end,) = ended
    end()
    assert not budget.used_bytes

"""The memory of call streams in the budget of their client."""

import random

from server.refusals import refusal

from shardcall_core.call_error import Reason
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.services.stream_memory import StreamMemory

MIB, STEP, UNCOUNTED = 1 << 20, 256 << 10, 256 << 10


def test_the_budget_holds_what_streams_hold_within_a_step():
    budget = MemoryBudget(100 * MIB, 100 * MIB)
    memory = StreamMemory(budget, "ann")
    chance, taken = random.Random(7), []
    for _ in range(2000):
        if taken and chance.random() < 0.5:
            memory.release(taken.pop(chance.randrange(len(taken))))
        else:
            taken.append(chance.randrange(100_000))
            memory.reserve(taken[-1])
        assert max(0, sum(taken) - UNCOUNTED) <= budget.used_bytes < max(1, sum(taken) - UNCOUNTED + STEP)
    memory.close()
    assert budget.used_bytes == 0
    memory.release(sum(taken))
    memory.reserve(5)
    assert budget.used_bytes == 0


def test_a_client_that_holds_too_much_is_refused_and_others_are_not():
    budget = MemoryBudget(3 * MIB, MIB)
    first, second, other = StreamMemory(budget, "ann"), StreamMemory(budget, "ann"), StreamMemory(budget, "bob")
    first.reserve(MIB + UNCOUNTED)
    second.reserve(UNCOUNTED)
    assert refusal(second.reserve, 1).reason is Reason.QUOTA_EXCEEDED
    other.reserve(MIB)
    first.release(MIB)
    second.reserve(MIB // 2)
    second.close()
    first.reserve(MIB)

"""Limit on the concurrent calls of one client."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from end_to_end.processes import wait_for

import shardcall
from shardcall._src.rpc.call_slots import CallSlots
from shardcall._src.rpc.cancellation import Cancellation
from shardcall._src.rpc.deadline import Deadline


def long() -> Deadline:
    return Deadline(60.0)


class Holder:
    """A thread that has a slot, or waits for one, until it is released."""

    def __init__(self, slots: CallSlots, order: list[str], name: str) -> None:
        self.inside, self.go = threading.Event(), threading.Event()

        def hold() -> None:
            with slots.one(long()):
                order.append(name)
                self.inside.set()
                self.go.wait(60)

        self.thread = threading.Thread(target=hold, daemon=True)
        self.thread.start()

    def leave(self) -> None:
        self.go.set()
        self.thread.join(60)


def waiting(slots: CallSlots, count: int) -> None:
    """Waits until so many wait."""
    wait_for(lambda: len(slots._waiting) >= count)


def test_those_above_the_number_wait_and_come_in_the_order_of_their_coming():
    slots, order = CallSlots(2), []
    first, second = Holder(slots, order, "first"), Holder(slots, order, "second")
    assert first.inside.wait(60)
    assert second.inside.wait(60)
    third = Holder(slots, order, "third")
    waiting(slots, 1)
    fourth = Holder(slots, order, "fourth")
    waiting(slots, 2)
    second.leave()
    assert third.inside.wait(60)
    assert not fourth.inside.is_set()
    first.leave()
    assert fourth.inside.wait(60)
    assert order[2:] == ["third", "fourth"]
    third.leave()
    fourth.leave()
    with slots.one(long()), slots.one(long()):
        pass


def test_a_waiter_that_times_out_gets_a_reason_and_consumes_no_slot():
    slots, order = CallSlots(1), []
    holder = Holder(slots, order, "holder")
    assert holder.inside.wait(60)
    message = r"0\.01 s passed while it waited .* has 1 calls"
    with pytest.raises(shardcall.DeadlineExceededError, match=message) as caught, slots.one(Deadline(0.01)):
        pass
    assert caught.value.field == "timeout"
    holder.leave()
    with slots.one(Deadline(0.01)):
        pass


def test_who_is_cancelled_waits_no_more():
    slots, order, cancellation = CallSlots(1), [], Cancellation()
    holder = Holder(slots, order, "holder")
    assert holder.inside.wait(60)

    def wait() -> None:
        with cancellation, slots.one(long()):
            pass

    with ThreadPoolExecutor(1) as pool:
        cancelled = pool.submit(wait)
        waiting(slots, 1)
        cancellation.cancel()
        assert isinstance(cancelled.exception(60), shardcall.CallCancelledError)
    holder.leave()
    with slots.one(Deadline(0.01)):
        pass


def test_no_number_is_no_limit():
    slots = CallSlots()
    with slots.one(long()), slots.one(long()), slots.one(long()):
        pass


def test_a_failing_body_releases_its_slot():
    slots = CallSlots(1)
    with pytest.raises(ZeroDivisionError), slots.one(long()):
        _ = 1 / 0
    with slots.one(Deadline(0.01)):
        pass

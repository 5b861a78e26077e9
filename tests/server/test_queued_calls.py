"""Calls that wait in a queue until their clients have fewer on the threads."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.queued_calls import QueuedCalls
from shardcall_server.frontend.services.interceptor import caller_of


class ManualPool:
    """A pool whose tasks end when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(self, run: Callable[[], Any]) -> Future[Any]:
        self.tasks.append((run, Future()))
        return self.tasks[-1][1]

    def end_first(self) -> None:
        run, future = self.tasks.pop(0)
        try:
            future.set_result(run())
        except ValueError as error:
            future.set_exception(error)


def queue(
    pool: ManualPool, *, total: int = 8, per_client: int = 2, max_waiting: int = 8, drain: Drain | None = None
) -> QueuedCalls:
    return QueuedCalls(pool, lambda owner, *_: owner, drain or Drain(), total, per_client, max_waiting)


def test_a_client_has_few_calls_on_threads_and_clients_alternate():
    pool, ran = ManualPool(), []
    queued = queue(pool, total=2, per_client=2, max_waiting=64)
    answers = [queued.submit(lambda owner, i: ran.append((owner, i)) or i, "a", i) for i in range(4)]
    others = [queued.submit(lambda owner, i: ran.append((owner, i)), "b", i) for i in range(4)]
    assert len(pool.tasks) == 3, "a client without a call has a reserved slot"
    while pool.tasks:
        pool.end_first()
    assert [answer.result(0) for answer in answers] == [0, 1, 2, 3]
    assert all(other.done() for other in others)
    assert ran[:3] == [("a", 0), ("a", 1), ("b", 0)]
    assert {owner for owner, _ in ran[3:5]} == {"a", "b"}


def test_a_full_queue_hands_calls_on():
    pool = ManualPool()
    queued = queue(pool, per_client=1, max_waiting=8)
    for i in range(1 + 6 + 2):
        queued.submit(lambda owner, i: i, "a", i)
    assert len(pool.tasks) == 1 + 2, "of 8 that wait one client has 6"


def test_a_drain_waits_for_calls_that_wait_and_hands_later_ones_on():
    pool, drain = ManualPool(), Drain()
    queued = queue(pool, per_client=1, drain=drain)
    answers = [queued.submit(lambda owner: owner, "a") for _ in range(2)]
    drain.begin()
    queued.submit(lambda owner: "refused", "a")
    assert len(pool.tasks) == 2, "the first, and what came late"
    while pool.tasks:
        assert not drain.wait(0.0)
        pool.end_first()
    assert [answer.result(0) for answer in answers] == ["a", "a"]
    assert drain.wait(0.0)


def test_errors_of_calls_are_passed_on():
    pool = ManualPool()
    queued = queue(pool)
    failed = queued.submit(lambda owner: int("x"), "a")
    pool.end_first()
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(0)


def test_a_caller_is_its_principal_or_its_connection():
    event = SimpleNamespace(call=SimpleNamespace(peer=lambda: b"ipv4:127.0.0.1:1"))
    assert caller_of(None, event, None, SimpleNamespace(args=(None,)), None) == "ipv4:127.0.0.1:1"
    assert caller_of(None, event, None, SimpleNamespace(args=(SimpleNamespace(name="alice"),)), None) == "alice"

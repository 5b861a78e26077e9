"""Health checks whose request has not come, and answers of health watches."""

import threading
from contextlib import ExitStack
from typing import Any
from unittest.mock import Mock

from shardcall_server.frontend.rpc.auxiliary_rpcs import AwaitedChecks, WatchAnswers
from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer


def context_of(connection: str) -> Mock:
    """An RPC; gRPC has another name for its connection once it has ended."""
    context = Mock()
    context.peer = lambda: "unknown" if context.cancel.called else connection
    return context


def test_the_oldest_check_of_the_busiest_connection_is_evicted():
    awaited: Any = AwaitedChecks(4)
    contexts = [context_of(f"ipv4:192.0.2.{i}:1") for i in (1, 2, 2, 2, 3)]
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(awaited.one(context))
        assert [context.cancel.called for context in contexts] == [False, True, False, False, False]


def test_checks_that_were_evicted_or_ended_are_counted_no_more():
    awaited: Any = AwaitedChecks(4)
    for _ in range(3):
        contexts = [context_of(f"ipv4:192.0.2.{i}:1") for i in range(50)]
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(awaited.one(context))
            assert sum(not context.cancel.called for context in contexts) == 4
            for context in contexts:  # by their limits
                context.cancel()


def test_answers_of_a_watch_wait_for_no_sending_and_the_latest_is_sent():
    sent, free, threads = [], threading.Event(), CountedThreads(2, 8, "watch")
    all_sent = threading.Event()

    def send(response: Any) -> None:
        assert free.wait(60)
        sent.append(response)
        if response == "last":
            all_sent.set()

    answers = WatchAnswers(send, lambda: None, threads, DeadlineTimer())
    with threads:
        for response in ("first", "second", "third", "last"):
            answers.put(response)
        free.set()
        assert all_sent.wait(60)
        answers.put(None)
    assert sent[0] in ("first", "last")
    assert sent[-2:] == ["last", None]
    assert len(sent) <= 3

"""Tasks: the threads that run them, their interruption and their end."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest
import structlog
from end_to_end.processes import wait_for
from server.conftest import on_threads, refusal
from structlog.testing import capture_logs

from shardcall_server.frontend.memory.resident_array_table import check_handle
from shardcall_server.frontend.rpc import coroutines
from shardcall_server.frontend.rpc.coroutines import Stage, Task
from shardcall_server.frontend.rpc.processor_shares import ProcessorShares
from shardcall_server.frontend.rpc.promise import Promise


async def result_of(future: Future[Any]) -> Any:
    return await coroutines.wait(future, "waiting")


SHARE = ProcessorShares().of("")


class TaskOutcome:
    """The end of a task, and the error of its call, once that has ended.

    Attributes:
        outcomes: the result and the error with which it finished.
        error: the error of the call; None while it may continue.
        asked: what it waited for when its call was checked.
    """

    def __init__(self) -> None:
        self.outcomes: list[tuple[Any, Exception | None]] = []
        self.error: Exception | None = None
        self.asked: list[str] = []

    def check(self, doing: str) -> Exception | None:
        self.asked.append(doing)
        return self.error

    def task(self, stage: Stage[Any]) -> Task:
        return Task(stage, self.check, lambda value, error: self.outcomes.append((value, error)), SHARE)

    def start(self, stage: Stage[Any]) -> Task:
        task = self.task(stage)
        task.start()
        return task


def on_thread(name: str, function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function, name=name)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_what_the_wait_raises_is_raised_in_the_stage():
    caught = []

    async def stage() -> None:
        try:
            await result_of(Future())
        except RuntimeError as error:
            caught.append(str(error))
            raise

    with pytest.raises(RuntimeError, match="left"):
        coroutines.run(stage(), Mock(side_effect=RuntimeError("left")))
    assert caught == ["left"]


def test_a_task_resumes_on_the_thread_that_completes_the_future():
    future: Future[None] = Future()
    names: list[str] = []

    async def stage() -> None:
        names.append(threading.current_thread().name)
        await result_of(future)
        names.append(threading.current_thread().name)

    ending = TaskOutcome()
    on_thread("starter", lambda: ending.start(stage()))
    assert ending.outcomes == []
    on_thread("completer", lambda: future.set_result(None))
    assert names == ["starter", "completer"]
    assert ending.outcomes == [(None, None)]


class RacingFuture(Future[None]):
    """A future that another thread completes while the first is still registering its callback."""

    def add_done_callback(self, callback: Callable[[Future[None]], object]) -> None:
        super().add_done_callback(callback)
        on_thread("completer", lambda: self.set_result(None))


def test_a_task_may_be_resumed_before_its_thread_has_left_it():
    async def stage() -> str:
        for _ in range(3):
            await result_of(RacingFuture())
        return "done"

    ending = TaskOutcome()
    ending.start(stage())
    assert ending.outcomes == [("done", None)]


def test_the_result_or_the_error_of_a_future_is_passed_to_the_end_of_a_task():
    future: Future[int] = Future()
    done: Future[int] = Future()
    done.set_result(1)
    ending = TaskOutcome()
    ending.start(result_of(done))
    assert ending.outcomes == [(1, None)], "it was not suspended"
    ending.start(result_of(future))
    future.set_exception(error := RuntimeError("no"))
    assert ending.outcomes[1:] == [(None, error)]


def test_tasks_are_never_nested():
    future: Future[None] = Future()
    order: list[str] = []

    async def waiter() -> None:
        await coroutines.wait(future, "waiting")
        order.append("waiter")

    async def completer() -> None:
        order.append("before")
        future.set_result(None)
        order.append("after")

    ending = TaskOutcome()
    ending.start(waiter())
    ending.start(completer())
    assert order == ["before", "after", "waiter"]
    assert len(ending.outcomes) == 2


def test_tasks_that_wake_one_another_do_not_overflow_the_stack():
    futures: list[Future[None]] = [Future() for _ in range(2001)]
    ending = TaskOutcome()

    async def link(i: int) -> None:
        await coroutines.wait(futures[i], "waiting")
        futures[i + 1].set_result(None)

    for i in range(2000):
        ending.start(link(i))
    futures[0].set_result(None)
    wait_for(lambda: len(ending.outcomes) == 2000)  # most on the thread that serves the clients in turn
    assert ending.outcomes == [(None, None)] * 2000


def test_an_interruption_ends_the_present_wait_and_cleans_up():
    future: Future[None] = Future()
    steps: list[str] = []

    async def stage() -> None:
        try:
            await coroutines.wait(future, "waiting for a slot")
        finally:
            steps.append("cleanup")

    ending = TaskOutcome()
    task = ending.start(stage())
    ending.error = RuntimeError("cancelled")
    task.interrupt()
    assert (steps, ending.outcomes, ending.asked) == (["cleanup"], [(None, ending.error)], ["waiting for a slot"])
    future.set_result(None)  # nothing waits any more
    task.interrupt()
    assert len(ending.outcomes) == 1


def test_an_interruption_while_a_task_runs_ends_its_next_wait():
    ending = TaskOutcome()

    async def stage() -> None:
        ending.error = RuntimeError("cancelled")
        on_thread("other", task.interrupt)
        await result_of(Future())

    task = ending.task(stage())
    task.start()
    assert ending.outcomes == [(None, ending.error)]


def test_an_interruption_without_a_cause_has_no_effect():
    future: Future[int] = Future()
    ending = TaskOutcome()
    task = ending.start(result_of(future))
    for _ in range(2):
        task.interrupt()
    assert (ending.outcomes, len(ending.asked)) == ([], 2)
    future.set_result(5)
    assert ending.outcomes == [(5, None)]


def test_an_interruption_during_one_without_a_cause_is_not_lost():
    ending = TaskOutcome()

    def check(doing: str) -> Exception | None:
        error, ending.error = ending.error, RuntimeError("cancelled")
        if error is None:  # the call is cancelled just after the check
            on_thread("other", task.interrupt)
        return error

    ending.check = check  # type: ignore[method-assign]
    task = ending.task(result_of(Future()))
    task.start()
    task.interrupt()
    assert [str(error) for _, error in ending.outcomes] == ["cancelled"]


def test_a_task_that_is_interrupted_and_woken_at_once_finishes_once():
    for _ in range(200):
        future: Future[int] = Future()
        ending = TaskOutcome()
        ending.error = RuntimeError("cancelled")
        task = ending.start(result_of(future))
        barrier = threading.Barrier(2)

        def act(function: Callable[[], object], barrier: threading.Barrier = barrier) -> None:
            barrier.wait(60)
            function()

        on_threads(act, [task.interrupt, lambda future=future: future.set_result(1)])
        assert ending.outcomes in ([(1, None)], [(None, ending.error)])


def test_a_task_keeps_the_log_context_of_its_start():
    future: Future[None] = Future()
    contexts: list[dict[str, Any]] = []

    async def stage() -> None:
        await coroutines.wait(future, "waiting")
        contexts.append(structlog.contextvars.get_contextvars())

    with structlog.contextvars.bound_contextvars(request_id="a"):
        TaskOutcome().start(stage())
    with structlog.contextvars.bound_contextvars(request_id="b"):
        future.set_result(None)
        assert structlog.contextvars.get_contextvars() == {"request_id": "b"}
    assert contexts == [{"request_id": "a"}]


def test_a_task_whose_end_fails_does_not_keep_others_from_their_end():
    future: Future[None] = Future()
    ending = TaskOutcome()

    async def complete() -> None:
        future.set_result(None)

    ending.start(result_of(future))
    with capture_logs() as logs:
        Task(complete(), ending.check, lambda value, error: 1 / 0, SHARE).start()
    assert [line["event"] for line in logs] == ["the end of a call failed"]
    assert ending.outcomes == [(None, None)]


def test_a_thread_resumes_a_few_tasks_and_another_the_rest_client_by_client():
    """So the thread that reads the link reads on, and the calls of one client do not delay those of others."""
    order: list[str] = []
    ending, opened, shares = TaskOutcome(), Future(), ProcessorShares()

    async def waiting(name: str) -> None:
        await coroutines.wait(opened, "waiting")
        order.append(name if threading.current_thread().name == "other-tasks" else "mine")

    async def flood() -> None:
        opened.set_result(None)

    for name in ["greedy"] * 500 + ["modest"]:
        Task(waiting(name), ending.check, Mock(), shares.of(name)).start()
    ending.start(flood())
    wait_for(lambda: len(order) == 501)
    assert order.count("mine") < 20
    assert order.index("modest") < 60


def test_a_promise_keeps_an_error_without_the_memory_that_its_traceback_holds():
    promise: Promise[None] = Promise()
    promise.set_exception(refusal(check_handle, b"", "handle"))
    assert promise.exception().__traceback__ is None
    assert refusal(promise.result) is not promise.exception()

"""Drivers of the coroutines of calls.

The stages of a call are coroutines that suspend on futures. A unary or streamed RPC runs them on its own thread, which
waits. The items of a call stream have no thread: the thread that completes a future resumes the coroutines that wait
for it. A thread resumes a few at a time: the others are left to a thread that serves the clients in turn, so that
the calls of one client, which resume each other, keep no other thread from its own work.
"""

from __future__ import annotations

import contextvars
import threading
import time
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import structlog

from shardcall_server.frontend.rpc.processor_shares import Share
from shardcall_server.frontend.rpc.promise import Waitable

T = TypeVar("T")

_MAX_PARTS = 16
"""The parts of coroutines that a thread runs at a time."""

_NO_SHARE_S = 0.1  # the longest wait of the thread that serves the clients in turn

Waiting: TypeAlias = tuple[Waitable[Any], str]
"""The future that a suspended coroutine waits for, and the work that the wait is a part of, for error messages."""

Stage: TypeAlias = Coroutine[Waiting, None, T]
"""A coroutine of a call."""


@types.coroutine
def wait(future: Waitable[T], doing: str) -> Generator[Waiting, None, T]:
    """Suspends a coroutine until a future is done, and returns its value.

    Raises:
        CallError: the call has ended; or the future's own error.
    """
    if not future.done():
        yield future, doing
    return future.result()


def run(stage: Stage[T], wait: Callable[[Waiting], None]) -> T:
    """Runs a coroutine to its end on this thread.

    Args:
        wait: waits for a future; what it raises is raised in the coroutine.
    """
    try:
        waiting = stage.send(None)
        while True:
            try:
                wait(waiting)
            except Exception as error:  # noqa: BLE001  # the coroutine decides
                waiting = stage.throw(error)
            else:
                waiting = stage.send(None)
    except StopIteration as end:
        value: T = end.value
        return value


class Task:
    """A coroutine that has no thread.

    Its parts run on the thread that calls `start` and on those that complete the futures it waits for, one after the
    other and never nested in each other. They must not block.

    Args:
        ended: returns the error of a call that has ended; called if the task was interrupted while it waits.
        finish: called once with the result, or with the error.
        share: the share of its client, in which its processor time counts.

    Attributes:
        context: the context of its log lines.
        share: as above.
    """

    __slots__ = ("_ended", "_finish", "_interrupted", "_stage", "_ticket", "_waiting", "context", "share")

    def __init__(
        self,
        stage: Stage[Any],
        ended: Callable[[str], Exception | None],
        finish: Callable[[Any, Exception | None], None],
        share: Share,
    ) -> None:
        self.share = share
        self._stage = stage
        self._ended = ended
        self._finish = finish
        self.context = contextvars.copy_context()
        self._interrupted = False
        self._ticket: list[None] = []  # the thread that takes its item resumes the coroutine
        self._waiting: Waiting | None = None

    def start(self) -> None:
        """Runs the coroutine until it waits."""
        _run_next(self)

    def interrupt(self) -> None:
        """Ends the present wait if the call has ended, and later ones."""
        self._interrupted = True
        self._resume(self._ticket)

    def advance(self) -> Waiting | None:
        """Runs the next part of the coroutine; returns what it waits for then. For this module."""
        error = None
        if self._interrupted and self._waiting is not None and not self._waiting[0].done():
            self._interrupted = False  # before the check, so that a later interruption counts
            error = self._ended(self._waiting[1])
            if error is None:
                return self._waiting
            self._interrupted = True
        try:
            return self._stage.send(None) if error is None else self._stage.throw(error)
        except StopIteration as end:
            self._finish(end.value, None)
        except Exception as failure:  # noqa: BLE001  # the error of the call
            self._finish(None, failure)
        return None

    def wait(self, waiting: Waiting) -> None:
        """Resumes the coroutine when a future is done; for this module.

        Another thread may run the next part before this method returns.
        """
        ticket = [None]
        self._waiting = waiting
        self._ticket = ticket
        waiting[0].add_done_callback(partial(self._resume, ticket))
        if self._interrupted:
            self._resume(ticket)

    def _resume(self, ticket: list[None], _: object = None) -> None:
        try:
            ticket.pop()
        except IndexError:  # it was resumed already
            return
        _run_next(self)


class _Steps(threading.local):
    """The tasks of which this thread runs a part.

    Attributes:
        queue: those whose next part it will run; None while it runs none.
        used_s: the processor time of the parts that it has run, in seconds.
    """

    queue: deque[Task] | None = None
    used_s = 0.0


_steps = _Steps()


def used_s() -> float:
    """Returns the processor time that this thread has used for tasks, in seconds; it counts in their shares."""
    return _steps.used_s


def _run_next(task: Task) -> None:
    """Runs the next part of a task on this thread, after the one that it runs now."""
    if _steps.queue is not None:
        _steps.queue.append(task)
        return
    queue = _steps.queue = deque([task])
    try:
        for _ in range(_MAX_PARTS):
            _run_part(queue.popleft())
            if not queue:
                return
    finally:
        _steps.queue = None
    _others.add(queue)


def _run_part(task: Task) -> None:
    began = time.thread_time()
    try:
        waiting = task.context.run(task.advance)
        if waiting is not None:  # outside the context, which only one thread can be in
            task.wait(waiting)
    except Exception:  # noqa: BLE001  # other tasks are in the queue
        structlog.get_logger().exception("the end of a call failed")
    spent_s = time.thread_time() - began
    _steps.used_s += spent_s
    task.share.spend(spent_s)


class _Others:
    """The tasks that were left by the threads that resumed them. A thread of their own serves their clients in turn."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards the next two
        self._by_share: OrderedDict[Share, deque[Task]] = OrderedDict()
        self._thread: threading.Thread | None = None

    def add(self, tasks: Iterable[Task]) -> None:
        """Adds tasks."""
        with self._changed:
            for task in tasks:
                self._by_share.setdefault(task.share, deque()).append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="other-tasks", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            _run_next(self._next())

    def _next(self) -> Task:
        """Waits for a task whose client may use the processor, and takes it."""
        with self._changed:
            while True:
                for share, tasks in self._by_share.items():
                    if not share.pause_s():
                        task = tasks.popleft()
                        if tasks:
                            self._by_share.move_to_end(share)
                        else:
                            del self._by_share[share]
                        return task
                self._changed.wait(_NO_SHARE_S if self._by_share else None)


_others = _Others()

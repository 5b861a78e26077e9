"""Drivers of the coroutines of calls.

The stages of a call are coroutines that suspend on futures. A unary or streamed RPC runs them on its own thread, which
waits. The items of a call stream have no thread: whoever completes a future resumes the coroutines that wait for it.
"""

from __future__ import annotations

import contextvars
import threading
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias, TypeVar

import structlog

T = TypeVar("T")


class Waiting(NamedTuple):
    """The reason for which a coroutine is suspended.

    Attributes:
        future: the future that it waits for.
        doing: the work that the wait is a part of, for error messages.
    """

    future: Future[Any]
    doing: str


Stage: TypeAlias = Coroutine[Waiting, None, T]
"""A coroutine of a call."""


@types.coroutine
def suspend(future: Future[Any], doing: str) -> Generator[Waiting, None, None]:
    """Suspends a coroutine until a future is done, or raises the error of a call that has ended."""
    yield Waiting(future, doing)


def run(stage: Stage[T], wait: Callable[[Waiting], None]) -> T:
    """Runs a coroutine to its end on this thread.

    Args:
        stage: the coroutine.
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
        stage: the coroutine.
        ended: returns the error of a call that has ended; called if the task was interrupted while it waits.
        finish: called once with the result, or with the error.
    """

    __slots__ = ("_context", "_ended", "_finish", "_interrupted", "_stage", "_ticket", "_waiting")

    def __init__(
        self,
        stage: Stage[Any],
        ended: Callable[[str], Exception | None],
        finish: Callable[[Any, Exception | None], None],
    ) -> None:
        self._stage = stage
        self._ended = ended
        self._finish = finish
        self._context = contextvars.copy_context()  # of log lines
        self._interrupted = False
        self._ticket: list[None] = []
        self._waiting: Waiting | None = None

    def start(self) -> None:
        """Runs the coroutine until it waits."""
        _run_next(self._step)

    def interrupt(self) -> None:
        """Ends the present wait if the call has ended, and later ones."""
        self._interrupted = True
        if self._claim(self._ticket):
            _run_next(self._interrupt)

    def _step(self) -> None:
        self._context.run(self._advance, None)

    def _interrupt(self) -> None:
        assert self._waiting is not None
        self._interrupted = False  # before the check, so that a later interruption counts
        error = self._ended(self._waiting.doing)
        if error is None:
            self._wait(self._waiting)
        else:
            self._interrupted = True
            self._context.run(self._advance, error)

    def _advance(self, error: Exception | None) -> None:
        try:
            while True:
                waiting = self._stage.send(None) if error is None else self._stage.throw(error)
                error = None
                if not waiting.future.done():
                    break
        except StopIteration as end:
            self._finish(end.value, None)
        except Exception as failure:  # noqa: BLE001  # the error of the call
            self._finish(None, failure)
        else:
            self._wait(waiting)

    def _wait(self, waiting: Waiting) -> None:
        ticket = [None]  # whoever takes it resumes the coroutine
        self._waiting = waiting
        self._ticket = ticket
        waiting.future.add_done_callback(lambda _: self._resume(ticket))
        if self._interrupted and self._claim(ticket):
            _run_next(self._interrupt)

    def _resume(self, ticket: list[None]) -> None:
        if self._claim(ticket):
            _run_next(self._step)

    @staticmethod
    def _claim(ticket: list[None]) -> bool:
        try:
            ticket.pop()
        except IndexError:
            return False
        return True


class _Steps(threading.local):
    """The parts of tasks that this thread will run; None while it runs none."""

    queue: deque[Callable[[], None]] | None = None


_steps = _Steps()


def _run_next(step: Callable[[], None]) -> None:
    """Runs a part of a task on this thread, after the one that it runs now."""
    if _steps.queue is not None:
        _steps.queue.append(step)
        return
    queue = _steps.queue = deque([step])
    try:
        while queue:
            try:
                queue.popleft()()
            except Exception:  # noqa: BLE001  # the steps of other tasks are in the queue
                structlog.get_logger().exception("the end of a call failed")
    finally:
        _steps.queue = None

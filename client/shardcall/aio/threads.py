"""Runs calls in threads, and cancels them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from shardcall._src.rpc.cancellation import Cancellation
from shardcall._src.rpc.deadline import is_timeout, waited_s
from shardcall._src.rpc.threads import no_thread
from shardcall_core.types.errors import ClientClosedError, DeadlineExceededError
from shardcall_core.wire.forks import begin_anew_in_children

_Value = TypeVar("_Value")

_MAX_THREADS = 32
_DROPPING_THREADS = 4  # apart from those of calls, behind which they would wait


class Threads:
    """The threads in which the calls of a client run, and others that drop values of cancelled tasks.

    Args:
        max_threads: the most calls that run at once.
    """

    def __init__(self, max_threads: int = _MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._find_dropped: Callable[[], object] | None = None
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)

    def search_with(self, find_dropped: Callable[[], object]) -> None:
        """Sets the search for dropped values, which are those of cancelled tasks that the server may have produced.

        Args:
            find_dropped: called in a thread after a task with ``dropped`` was cancelled and its value did not arrive.
        """
        self._find_dropped = find_dropped

    def begin_anew(self) -> None:
        """Resets the object in a forked child, which has threads of its own."""
        self._pool = ThreadPoolExecutor(self._max_threads, thread_name_prefix="shardcall-aio")
        self._dropping = ThreadPoolExecutor(_DROPPING_THREADS, thread_name_prefix="shardcall-aio-drop")
        self._is_to_find = False
        if self._closed:
            self._pool.shutdown()
            self._dropping.shutdown()

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    async def run(
        self,
        work: Callable[[], _Value],
        dropped: Callable[[_Value], object] | None = None,
        timeout: object = None,
    ) -> _Value:
        """Runs a function in a thread, with the caller's context variables.

        Cancellation cancels the RPC in flight, and waits for the function to return.

        Args:
            work: the function.
            dropped: called in a thread with a value that arrives after the task was cancelled.
            timeout: the timeout of the work in seconds, which includes the wait for a thread; None for no limit of
                that wait.

        Raises:
            ClientClosedError: after `close`.
            DeadlineExceededError: no thread was free in time.
        """
        cancellation, patience_s = Cancellation(), float(timeout) if is_timeout(timeout) else None
        try:
            within = partial(_within, cancellation, None if patience_s is None else time.monotonic(), work)
            submitted = self._pool.submit(contextvars.copy_context().run, within)
        except RuntimeError as error:
            if not self._closed and not sys.is_finalizing():
                raise no_thread(error) from None
            raise ClientClosedError("this client is closed; make another with shardcall.aio.connect") from None
        value = asyncio.wrap_future(submitted)
        try:
            # Cancelling this wait does not cancel the value, as cancelling an await would.
            await asyncio.wait([value], timeout=patience_s)
            if not value.done() and submitted.cancel():
                raise DeadlineExceededError(
                    f"the call's {patience_s:g} s passed before one of this client's {self._max_threads} threads took "
                    f"it; give it a longer timeout, or make {self._max_threads} calls at once at most",
                    field="timeout",
                )
            await asyncio.wait([value])
            return value.result()
        except asyncio.CancelledError:
            cancellation.cancel()
            submitted.cancel()  # if no thread has started it
            await _ended(value)
            if not value.cancelled():  # else it was never started
                await self._drop(value, dropped)
            raise
        finally:
            del submitted, value, within, work  # an error's traceback would keep them and the operands alive

    async def close(self, cancel: Callable[[], None]) -> None:
        """Runs ``cancel``, which cancels the calls in flight, and waits for all threads."""

        def close() -> None:
            cancel()
            self._closed = True
            self._pool.shutdown()
            self._dropping.shutdown()

        closing = asyncio.create_task(asyncio.to_thread(close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await _ended(closing)
            raise

    async def _drop(self, value: asyncio.Future[_Value], dropped: Callable[[_Value], object] | None) -> None:
        error = value.exception()  # read in any case, or asyncio would log it as never retrieved
        if dropped is None:
            return
        with contextlib.suppress(RuntimeError):  # closed meanwhile, with all that the client had
            if error is None:
                await _ended(asyncio.wrap_future(self._dropping.submit(dropped, value.result())))
            elif self._find_dropped is not None and not self._is_to_find:
                self._is_to_find = True  # a search that has not started finds these too
                self._dropping.submit(self._find, self._find_dropped)  # not waited for

    def _find(self, find_dropped: Callable[[], object]) -> None:
        self._is_to_find = False
        find_dropped()


async def _ended(future: asyncio.Future[Any]) -> None:
    """Waits for a cancelled future, even if the waiting task is cancelled again."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])


def _within(cancellation: Cancellation, asked_at: float | None, work: Callable[[], _Value]) -> _Value:
    waited_s.set(0.0 if asked_at is None else time.monotonic() - asked_at)
    with cancellation:
        return work()

"""The threads in which calls run, and what becomes of those that are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from shardcall.cancellation import Cancellation
from shardcall.errors import ClientClosedError

_Value = TypeVar("_Value")

_MOST_THREADS = 32


class Threads:
    """The threads in which the calls of a client run.

    Attributes:
        find_dropped: runs in a thread after a task was cancelled whose value was to be dropped and did not come,
            though the server may have made it.
    """

    def __init__(self) -> None:
        self.find_dropped: Callable[[], object] | None = None
        self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="shardcall-aio")

    async def run(self, work: Callable[[], _Value], dropped: Callable[[_Value], object] | None = None) -> _Value:
        """Runs it in a thread, with the caller's context variables.

        Cancelled, it cancels the RPC in flight, and ends when the thread is done with it.

        Args:
            work: what to run.
            dropped: is given, in a thread too, a value that nobody will get, because it came as the task was
                cancelled.

        Raises:
            ClientClosedError: after `close`.
        """
        cancellation = Cancellation()
        try:
            submitted = self._pool.submit(contextvars.copy_context().run, _within, cancellation, work)
        except RuntimeError:
            raise ClientClosedError("this client is closed; make another with shardcall.aio.connect") from None
        value = asyncio.wrap_future(submitted)
        try:
            await asyncio.wait([value])  # unlike an await of the value, leaves it alone when it is cancelled
            return value.result()
        except asyncio.CancelledError:
            cancellation.cancel()
            submitted.cancel()  # in case no thread has begun it
            await _ended(value)
            if not value.cancelled():  # else it was never begun
                await self._drop(value, dropped)
            raise
        finally:
            del submitted, value, work  # an error's traceback leads here, and they to it and the operands

    async def close(self, end: Callable[[], None]) -> None:
        """Runs ``end``, which shall end the calls in flight, and waits for all threads."""

        def close() -> None:
            end()
            self._pool.shutdown()

        closing = asyncio.create_task(asyncio.to_thread(close))
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await _ended(closing)
            raise

    async def _drop(self, value: asyncio.Future[_Value], dropped: Callable[[_Value], object] | None) -> None:
        error = value.exception()  # asked for in any case, or asyncio would log it as one that was overlooked
        if dropped is None:
            return
        with contextlib.suppress(RuntimeError):  # closed meanwhile, and what the client had went with it
            if error is None:
                await _ended(asyncio.wrap_future(self._pool.submit(dropped, value.result())))
            elif self.find_dropped is not None:
                self._pool.submit(self.find_dropped)  # nobody waits for it


async def _ended(future: asyncio.Future[Any]) -> None:
    """Waits for the end of what was cancelled, and is not hurried by being cancelled again."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])


def _within(cancellation: Cancellation, work: Callable[[], _Value]) -> _Value:
    with cancellation:
        return work()

"""The client for asyncio: the same names, with ``await``.

    from shardcall import aio

    async with aio.connect("localhost:8470") as client:
        first, second = await asyncio.gather(client.diff(x), client.diff(y))

Calls run in threads, since gRPC's own asyncio client moves large arrays 1.5 times slower and leaks memory when
calls are cancelled. A task that is cancelled, by ``asyncio.timeout`` for one, cancels its RPC and waits for its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from shardcall import connection, local_server
from shardcall.arrays import Array
from shardcall.cancellation import Cancellation
from shardcall.client import Client
from shardcall.compiled import CompiledKernel
from shardcall.errors import ClientClosedError

_Arguments = ParamSpec("_Arguments")
_Wrapped_co = TypeVar("_Wrapped_co", covariant=True)
_Value = TypeVar("_Value")
_Given = TypeVar("_Given")

_MOST_THREADS = 32


class Threads:
    """The threads in which the calls of a client run."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="shardcall-aio")

    async def run(self, work: Callable[[], _Value], dropped: Callable[[_Value], object] | None = None) -> _Value:
        """Runs it in a thread, with the caller's context variables.

        Cancelled, it cancels the RPC in flight, and ends when the thread is done with it.

        Args:
            work: what to run.
            dropped: is given a value that nobody will get, because it came as the task was cancelled.

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
            if not value.cancelled() and value.exception() is None and dropped is not None:
                dropped(value.result())
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


async def _ended(future: asyncio.Future[Any]) -> None:
    """Waits for the end of what was cancelled, and is not hurried by being cancelled again."""
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([future])


def _within(cancellation: Cancellation, work: Callable[[], _Value]) -> _Value:
    with cancellation:
        return work()


class _Asynchronous(Generic[_Wrapped_co]):
    """Something synchronous, and the threads in which its methods run."""

    def __init__(self, wrapped: _Wrapped_co, threads: Threads) -> None:
        self._wrapped = wrapped
        self._threads = threads

    def __repr__(self) -> str:
        return repr(self._wrapped).replace("<", "<Async", 1)


def _awaited(
    method: Callable[Concatenate[_Wrapped_co, _Arguments], _Value],
) -> Callable[Concatenate[_Asynchronous[_Wrapped_co], _Arguments], Coroutine[Any, Any, _Value]]:
    """Returns the method to be awaited, with its signature and its docstring."""
    return _awaited_as(lambda value, _: value, method)


def _awaited_as(
    give: Callable[[_Value, Threads], _Given],
    method: Callable[Concatenate[_Wrapped_co, _Arguments], _Value],
) -> Callable[Concatenate[_Asynchronous[_Wrapped_co], _Arguments], Coroutine[Any, Any, _Given]]:
    """Returns the method to be awaited; what it returns goes through ``give``."""

    @functools.wraps(method)
    async def run(self: _Asynchronous[_Wrapped_co], /, *args: _Arguments.args, **keywords: _Arguments.kwargs) -> _Given:
        value = await self._threads.run(functools.partial(method, self._wrapped, *args, **keywords))
        return give(value, self._threads)

    return run


class AsyncCompiledKernel(_Asynchronous[CompiledKernel]):
    """As `shardcall.CompiledKernel`; the call and `as_text` are awaited.

    Attributes:
        plan: what a call does.
    """

    def __init__(self, wrapped: CompiledKernel, threads: Threads) -> None:
        super().__init__(wrapped, threads)
        self.plan = wrapped.plan

    __call__ = _awaited(CompiledKernel.__call__)  # type: ignore[arg-type]
    as_text = _awaited(CompiledKernel.as_text)

    @property
    def key(self) -> Mapping[str, str]:
        """The labelled parts of the key that the program is kept by."""
        return self._wrapped.key

    @property
    def cache_hit(self) -> bool:
        """Whether the program was there when this kernel was compiled."""
        return self._wrapped.cache_hit

    @property
    def operands(self) -> tuple[Array, ...]:
        """The types of the arrays that a call takes."""
        return self._wrapped.operands

    def explain(self) -> str:
        """Returns the plan, and why the program had to be compiled if it had to, as text."""
        return self._wrapped.explain()


class AsyncClient(_Asynchronous[Client]):
    """As `shardcall.Client`, its methods awaited; made by `connect` or `local`.

    May be used by any number of tasks at once, and in several event loops.
    """

    call = _awaited(Client.call)
    diff = _awaited(Client.diff)
    matmul = _awaited(Client.matmul)
    collective_matmul = _awaited(Client.collective_matmul)
    plan = _awaited(Client.plan)
    compile = _awaited_as(AsyncCompiledKernel, Client.compile)
    kernels = _awaited(Client.kernels)
    kernel = _awaited(Client.kernel)
    server_info = _awaited(Client.server_info)

    @property
    def address(self) -> str:
        """Where the server is."""
        return self._wrapped.address

    async def close(self) -> None:
        """Ends the connection and the calls in flight, as `shardcall.Client.close`. May be repeated."""
        await self._threads.close(self._wrapped.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Connecting:
    """A connection to be made: ``await`` it for the client, or enter it by ``async with`` and have it closed."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.close()

    async def _open(self) -> AsyncClient:
        threads = Threads()
        return AsyncClient(await threads.run(self._connect, dropped=Client.close), threads)


def _connecting(connect: Callable[_Arguments, Client]) -> Callable[_Arguments, Connecting]:
    @functools.wraps(connect)
    def begin(*args: _Arguments.args, **keywords: _Arguments.kwargs) -> Connecting:
        return Connecting(functools.partial(connect, *args, **keywords))

    return begin


connect = _connecting(connection.connect)
local = _connecting(local_server.local)

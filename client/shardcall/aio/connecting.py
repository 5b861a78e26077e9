"""Connections that are opened by ``await`` or ``async with``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from shardcall import connection, local_server
from shardcall.aio.client import AsyncClient
from shardcall.aio.threads import Threads
from shardcall.client import Client
from shardcall_core.types.tracebacks import shortened

_Arguments = ParamSpec("_Arguments")

_INSTEAD = "write `async with aio.connect(…) as client:`, or `client = await aio.connect(…)`"


class PendingConnection:
    """A connection that is not open yet: ``await`` it for the client, or use ``async with``, which also closes it."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: AsyncClient | None = None

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._open().__await__()

    def __enter__(self) -> NoReturn:
        raise TypeError(f"a connection to be made is entered by async with; {_INSTEAD}")

    def __exit__(self, error_type: object, error: object, trace: object, /) -> None:
        """Required by the ``with`` statement, which looks it up before it calls `__enter__`."""

    if not TYPE_CHECKING:  # a type checker that saw it would accept every misspelt name

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"a connection to be made has no {name!r}; {_INSTEAD}", name=name, obj=self)

    async def __aenter__(self) -> AsyncClient:
        self._client = await self._open()
        return self._client

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.close()

    @shortened
    async def _open(self) -> AsyncClient:
        threads = Threads()
        try:
            client = await threads.run(self._connect, dropped=Client.close)
            client._shows_values = False  # to show them would hold up the event loop
            return AsyncClient(client, threads)
        except BaseException:
            await threads.close(lambda: None)
            raise


def _connecting(connect: Callable[_Arguments, Client]) -> Callable[_Arguments, PendingConnection]:
    @functools.wraps(connect)
    def begin(*args: _Arguments.args, **keywords: _Arguments.kwargs) -> PendingConnection:
        return PendingConnection(functools.partial(connect, *args, **keywords))

    return begin


connect = _connecting(connection.connect)
local = _connecting(local_server.local)

"""The client for asyncio: the same names, with ``await``.

    from shardcall import aio

    async with aio.connect("localhost:8470") as client:
        first, second = await asyncio.gather(client.diff(x), client.diff(y))

Calls run in threads, since gRPC's own asyncio client moves large arrays 1.5 times slower and leaks memory when
calls are cancelled. A task that is cancelled, by ``asyncio.timeout`` for one, cancels its RPC and waits for its end.
"""

from shardcall.aio.client import AsyncClient
from shardcall.aio.compiled import AsyncCompiledKernel
from shardcall.aio.connecting import PendingConnection, connect, local
from shardcall.aio.remote_array import AsyncRemoteArray
from shardcall.aio.traced import AsyncTracedFunction

__all__ = [
    "AsyncClient",
    "AsyncCompiledKernel",
    "AsyncRemoteArray",
    "AsyncTracedFunction",
    "PendingConnection",
    "connect",
    "local",
]

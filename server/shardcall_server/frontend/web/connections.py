"""The connections of the HTTP server, and their limits; imports uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict
from typing import Any

import structlog
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

_MAX_HEAD_BYTES = 16 << 10
_TICK_S = 1.0  # of the header Date

Client = tuple[str, int]
"""The address and the port of the other end."""


class Connections:
    """The open connections, which one thread uses.

    Args:
        timeout_s: the time limit of a connection.
        max_connections: the limit of connections; beyond it the oldest is closed.
    """

    def __init__(self, timeout_s: float, max_connections: int) -> None:
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._open: dict[Client | None, _Connection] = {}
        self._limited: OrderedDict[_Connection, asyncio.TimerHandle] = OrderedDict()

    def add(self, connection: _Connection) -> None:
        """Adds a connection that was accepted."""
        self._open[connection.client] = connection
        self._limit(connection)

    def remove(self, connection: _Connection) -> None:
        """Removes a connection that has ended."""
        self._open.pop(connection.client, None)
        self._lift(connection)

    def lift_limits(self, client: Client) -> None:
        """Removes the time limits of a connection, and its place among those that are counted."""
        if (connection := self._open.get(client)) is not None:
            self._lift(connection)

    def restore_limits(self, client: Client) -> None:
        """Limits a connection again, as one that was accepted now."""
        if (connection := self._open.get(client)) is not None:
            self._lift(connection)
            self._limit(connection)

    def abort(self, client: Client) -> None:
        """Ends a connection, without sending what waits."""
        if (connection := self._open.get(client)) is not None:
            connection.transport.abort()

    def close(self) -> None:
        """Ends all connections, after sending what waits."""
        for connection in list(self._open.values()):
            connection.transport.close()

    def _limit(self, connection: _Connection) -> None:
        timer = connection.loop.call_later(self._timeout_s, connection.transport.abort)
        self._limited[connection] = timer
        if len(self._limited) > self._max_connections:
            oldest, timer = self._limited.popitem(last=False)
            timer.cancel()
            oldest.transport.abort()

    def _lift(self, connection: _Connection) -> None:
        if (timer := self._limited.pop(connection, None)) is not None:
            timer.cancel()


async def serve(application: ASGIApp, listener: socket.socket, connections: Connections, stop: asyncio.Event) -> None:
    """Serves an application at a socket.

    Args:
        listener: a socket that listens.
        connections: gets the connections.
        stop: set by the same thread when the server is to stop.
    """
    asyncio.get_running_loop().set_exception_handler(_log)

    def connection(**arguments: Any) -> _Connection:
        return _Connection(connections, **arguments)

    config = Config(
        application,
        http=connection,  # type: ignore[arg-type]  # it is called as a class
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",  # lines of its own for wrong requests, of which anyone may send many
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
    )
    await _Server(config, connections, stop).serve([listener])


class _Connection(H11Protocol):
    """A connection of uvicorn that is limited."""

    def __init__(self, limits: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Adds the connection."""
        super().connection_made(transport)
        self._limits.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Removes the connection."""
        self._limits.remove(self)
        super().connection_lost(exc)


class _Server(Server):
    """A server that stops at once, although browsers watch."""

    def __init__(self, config: Config, limits: Connections, stop: asyncio.Event) -> None:
        super().__init__(config)
        self._limits = limits
        self._stop = stop

    async def main_loop(self) -> None:
        """Waits for the stop, and renews the header Date meanwhile."""
        while not self._stop.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the tasks and the connections."""
        for server in self.servers:
            server.close()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._limits.close()
        await asyncio.sleep(0)  # for the sockets to be closed


def _log(_: object, context: dict[str, Any]) -> None:
    reason = str(context.get("exception") or context["message"])
    structlog.get_logger().debug("metrics could not be sent", reason=reason)

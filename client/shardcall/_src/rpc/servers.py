"""The servers of a client, of which it uses one at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import grpc

from shardcall_core.access.token import Token


@dataclass(frozen=True)
class ServerEndpoint:
    """A server that a client may use.

    Attributes:
        address: its address, as the caller wrote it.
        open_channel: opens a connection.
        token: the token of its RPCs.
    """

    address: str
    open_channel: Callable[[], grpc.Channel]
    token: Token = field(default_factory=Token)


class _Attempt(threading.local):
    """The server of the attempt that a thread makes; None if it makes none."""

    index: int | None = None


class ServerList:
    """The servers of a client, safe to use from several threads at once.

    Args:
        servers: one or more of them.
        current: the index of the one to begin with.
    """

    def __init__(self, servers: Sequence[ServerEndpoint], current: int = 0) -> None:
        self._servers = tuple(servers)
        # Without a lock, which a fork could leave locked: threads that leave a server all store the same index.
        self._current = current
        self._attempt = _Attempt()

    @property
    def current(self) -> int:
        """The index of the server that RPCs go to: in an attempt of this thread, that of the attempt."""
        index = self._attempt.index
        return self._current if index is None else index

    def is_next(self, server: int) -> bool:
        """Returns whether attempts that begin now are at a server."""
        return server == self._current

    @property
    def other_addresses(self) -> frozenset[str]:
        """The addresses of the servers that are not the current one."""
        return frozenset(server.address for server in self._servers) - {self.address}

    @contextmanager
    def attempt(self, index: int | None = None) -> Iterator[int]:
        """Stays with one server during the body, on this thread, so that it alone is shown its token.

        Args:
            index: the server; None for the current one.
        """
        before = self._attempt.index
        self._attempt.index = self._current if index is None else index
        try:
            yield self._attempt.index
        finally:
            self._attempt.index = before

    @property
    def address(self) -> str:
        """The address of the current server."""
        return self._servers[self.current].address

    @property
    def token(self) -> Token:
        """The token for the current server."""
        return self._servers[self.current].token

    def leave(self, index: int) -> None:
        """Goes on to the next server, unless another thread has left the one of this index before."""
        if self._current == index:
            self._current = (index + 1) % len(self._servers)

    def open_channel(self) -> grpc.Channel:
        """Returns a connection to whichever server is the current one at the time of an RPC."""
        channels = [server.open_channel() for server in self._servers]
        return channels[0] if len(channels) == 1 else _SwitchingChannel(channels, self)


class _Method:
    """A method of a service, called at the current server.

    Args:
        methods: the method of each server.
        servers: the servers.
    """

    def __init__(self, methods: Sequence[Any], servers: ServerList) -> None:
        self._methods = methods
        self._servers = servers

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._methods[self._servers.current](*arguments, **options)

    def future(self, *arguments: Any, **options: Any) -> Any:
        """Begins the call, as gRPC's methods do."""
        return self._methods[self._servers.current].future(*arguments, **options)


class _SwitchingChannel(grpc.Channel):
    """Channels to several servers, as one.

    Args:
        channels: the channel of each server.
        servers: the servers.
    """

    def __init__(self, channels: Sequence[grpc.Channel], servers: ServerList) -> None:
        self._channels = channels
        self._servers = servers

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._method("unary_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._method("unary_stream", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        return self._method("stream_unary", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        return self._method("stream_stream", arguments, options)

    def _method(self, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> _Method:
        methods = [getattr(channel, name)(*arguments, **options) for channel in self._channels]
        return _Method(methods, self._servers)

    def subscribe(
        self, callback: Callable[[grpc.ChannelConnectivity], None], try_to_connect: bool | None = False
    ) -> None:
        raise NotImplementedError("the states of several connections are no state of one")

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        raise NotImplementedError("the states of several connections are no state of one")

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Snapshots of a server's state, also while its mesh is not ready."""

from __future__ import annotations

import dataclasses
from functools import partial
from types import TracebackType
from typing import Self

from shardcall._src.display.meters import Meters
from shardcall._src.rpc.deadline import deadline_after
from shardcall._src.rpc.servers import ServerEndpoint, ServerList
from shardcall._src.rpc.transport import Transport
from shardcall.cli.connecting import Connection
from shardcall.client import ask_server_info
from shardcall.connection import explained
from shardcall.v1 import server_info_service_pb2
from shardcall_core.access.channel import open_channel
from shardcall_core.access.token import find_token
from shardcall_core.types import usage
from shardcall_core.types.errors import AccessDeniedError, ShardcallError
from shardcall_core.types.server_info import ServerInfo
from shardcall_core.types.usage import Usage


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The state of a server at one moment; ``info`` is None while its mesh is not ready."""

    usage: Usage
    info: ServerInfo | None


class Snapshots:
    """A connection that shows this user's token of all scopes and needs no mesh.

    Args:
        connection: the server.
    """

    def __init__(self, connection: Connection) -> None:
        self._where, self._encryption = connection.where, connection.encryption
        self._timeout_s = connection.timeout
        encrypted = self._encryption is not None or connection.tls is False
        token = find_token(self._where, None, encrypted=encrypted, admin=True)
        open_ = partial(open_channel, self._where, tls=self._encryption)
        self._transport = Transport(ServerList([ServerEndpoint(self._where.target, open_, token)]), Meters(False))

    def take(self) -> Snapshot:
        """Returns the state at this moment.

        Raises:
            ShardcallError: of the class that fits.
        """
        deadline, request = deadline_after(self._timeout_s, 0), server_info_service_pb2.GetUsageRequest()
        transport = self._transport
        try:
            held = usage.from_proto(
                transport.unary(transport.stubs.server.GetUsage, request, deadline, retryable=False)
            )
            return Snapshot(held, ask_server_info(transport, deadline) if held.mesh.ready else None)
        except AccessDeniedError:
            raise
        except ShardcallError as error:
            raise explained(error, self._where, self._encryption, self._timeout_s) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

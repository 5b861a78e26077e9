"""A server whose tokens tests add and remove."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from end_to_end.messages import open_channel
from end_to_end.processes import wait_for
from end_to_end.scraping import log_lines
from servers import ServerProcess

from shardcall.v1 import server_info_service_pb2, server_info_service_pb2_grpc
from shardcall_core.wire import token_file


@dataclass(frozen=True)
class TokenServer:
    """A server that has a log, and its token file."""

    server: ServerProcess
    path: Path

    def add(self, name: str, scopes: Sequence[str] = ("run", "arrays")) -> str:
        """Gives a principal a new token; returns it when the server accepts it."""
        entry = token_file.Entry.make(name, scopes)
        token_file.replace(str(self.path), [*self._others(name), entry])
        wait_for(lambda: is_accepted(self.server, entry.token))
        return entry.token

    def remove(self, name: str) -> None:
        """Removes the token of a principal; the server accepts it for a moment longer."""
        token_file.replace(str(self.path), self._others(name))

    def user_token(self) -> str:
        """The token of its owner."""
        return token_file.read(str(self.path))[0].token

    def _others(self, name: str) -> list[token_file.Entry]:
        return [entry for entry in token_file.read(str(self.path)) if entry.name != name]

    def refusals(self) -> list[dict]:
        """The server's log lines about files that it refused."""
        return [line for line in log_lines(self.server.log) if "invalid token file ignored" in line["event"]]


def is_accepted(server: ServerProcess, token: str) -> bool:
    with open_channel(server.address, token=token) as channel:
        stub = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        asked = stub.GetServerInfo.future(server_info_service_pb2.GetServerInfoRequest(), timeout=60)
        assert asked.code() in {grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED}, asked
        return asked.code() is grpc.StatusCode.OK

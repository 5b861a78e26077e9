"""A server whose tokens tests add and remove."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import grpc
from end_to_end.messages import open_channel
from servers import ServerProcess

from shardcall.v1 import server_info_service_pb2, server_info_service_pb2_grpc


@dataclass(frozen=True)
class TokenServer:
    """A server, its token file, and its log."""

    server: ServerProcess
    path: Path
    log: Path

    def refusals(self) -> list[dict]:
        """The server's log lines about files that it refused."""
        return events(self.log, "invalid token file ignored")


def is_accepted(server: ServerProcess, token: str) -> bool:
    with open_channel(server.address, token=token) as channel:
        stub = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        asked = stub.GetServerInfo.future(server_info_service_pb2.GetServerInfoRequest(), timeout=60)
        assert asked.code() in {grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED}, asked
        return asked.code() is grpc.StatusCode.OK


def events(log: Path, says: str) -> list[dict]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if says in line["event"]]

"""A server whose principals change."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import grpc
import numpy as np
from end_to_end.messages import execute, open_channel, operand
from end_to_end.processes import wait_for
from servers import ServerProcess

import shardcall as sc
from shardcall.v1 import kernel_service_pb2_grpc
from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import PrincipalLimits, TokenFields
from shardcall_core.wire.token_file import Entry

PAST = datetime(2026, 1, 31, 12, tzinfo=UTC)
EXPIRED = "expired at 2026-01-31T12:00:00Z"
ADMIN = token_file.user_name()


@dataclass
class TokenServer:
    """A server and its principals, who change."""

    server: ServerProcess
    path: str
    url: str
    entries: dict[str, Entry] = field(default_factory=dict)

    def write(self, *entries: Entry) -> None:
        """Adds principals or replaces them; waits until the server has read the file."""
        self.entries.update({entry.name: entry for entry in entries})
        mark = Entry.make(f"mark-{len(self.entries)}", ["run"])
        self.entries[mark.name] = mark
        token_file.replace(self.path, list(self.entries.values()))
        wait_for(lambda: self.code(mark.token) is grpc.StatusCode.OK)

    def make(self, name: str, scopes: str = "run,arrays", **limits: int) -> Entry:
        entry = Entry.make(name, scopes.split(","), TokenFields(limits=PrincipalLimits(**limits)))
        self.write(entry)
        return entry

    def expire(self, entry: Entry) -> None:
        self.write(replace(entry, fields=replace(entry.fields, expires=PAST)))

    def connect(self, entry: Entry, **options: object) -> sc.Client:
        return sc.connect(self.server.address, token=entry.token, **options)

    def code(self, token: str) -> grpc.StatusCode:
        with open_channel(self.server.address, token=token) as channel:
            stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
            return stub.Execute.future(execute(operand(np.arange(8.0))), timeout=60).code()

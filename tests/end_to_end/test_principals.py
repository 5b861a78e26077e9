"""Principals of the token file: the end of their tokens, their limits, and what they have and do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, details, execute, header, open_channel, operand
from end_to_end.processes import wait_for
from end_to_end.raw_stream import Stream, item, prepare, put
from end_to_end.scraping import metrics_url
from servers import ServerProcess, running_server
from typer.testing import CliRunner

import shardcall as sc
from shardcall.cli.app import make_app
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import PrincipalLimits, TokenFields
from shardcall_core.wire.token_file import Entry

X = np.arange(8.0)
PAST = datetime(2026, 1, 31, 12, tzinfo=UTC)
EXPIRED = "expired at 2026-01-31T12:00:00Z"
ADMIN = token_file.user_name()


def command(*arguments: str) -> Any:
    return CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "160"})


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
            return stub.Execute.future(execute(operand(X)), timeout=60).code()


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[TokenServer]:
    folder = tmp_path_factory.mktemp("principals")
    path, log = str(folder / "state" / "token"), folder / "log"
    admin = Entry.make(ADMIN, token_file.SCOPES)
    token_file.create(path, [admin])
    token_file.create(token_file.admin_path(path), [Entry.make(ADMIN, token_file.SCOPES)])
    with running_server(
        "--token-file", path, "--metrics-port", "0", devices=2, log=log, why="its tokens change"
    ) as server:
        yield TokenServer(server, path, metrics_url(log), {ADMIN: admin})


@pytest.fixture
def admin(running) -> Iterator[sc.Client]:
    with running.connect(running.entries[ADMIN]) as client:
        yield client


def test_a_call_in_progress_ends_after_its_token_has_expired(running, admin):
    ada, expired = running.make("ada"), threading.Event()

    def upload() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([4, 100])
        expired.wait(60)
        yield chunk(0, 0, 3200)

    with open_channel(running.server.address, token=ada.token) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        answers = stub.ExecuteStream(upload(), timeout=120)
        wait_for(lambda: admin.usage().by_principal["ada"].calls == 1)
        running.expire(ada)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Execute(execute(operand(X)), timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert EXPIRED in caught.value.details()
        assert details(caught.value)["ErrorInfo"].metadata["expired_at"] == "2026-01-31T12:00:00Z"
        expired.set()
        assert [message.WhichOneof("message") for message in answers] == ["header", "chunk", "timing"]


def test_an_open_stream_ends_in_order_and_serves_nothing_new(running, admin):
    ada = running.make("streaming")
    with open_channel(running.server.address, token=ada.token) as channel:
        stream = Stream(channel)
        stream.send(prepare(), item(1, X), put(2, X, bytes(16)))
        np.testing.assert_array_equal(stream.result(1), np.ones(7))
        assert stream.response(2) is not None
        running.expire(ada)
        assert stream.end() is grpc.StatusCode.OK
        assert stream.draining
        stream = Stream(channel)
        assert EXPIRED in stream.error().details()
    assert admin.usage().by_principal["streaming"].arrays == 1


def test_a_rotation_voids_the_old_token(running):
    ada = running.make("ada")
    with running.connect(ada) as before:
        before.diff(X)
        assert command("token", "rotate", "ada", "--token-file", running.path).exit_code == 0
        rotated = running.entries["ada"] = token_file.entry_of(token_file.read(running.path), "ada")
        wait_for(lambda: running.code(rotated.token) is grpc.StatusCode.OK)
        assert running.code(ada.token) is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(sc.AccessDeniedError, match="was removed"):
            before.diff(X)

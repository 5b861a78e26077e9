"""Principals of the token file: the end of their tokens, their limits, and what they have and do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, details, execute, header, open_channel, operand
from end_to_end.processes import wait_for
from end_to_end.raw_stream import Stream, item, prepare, put
from end_to_end.scraping import metrics_url, scrape
from rows import rows
from servers import ServerProcess, running_server
from typer.testing import CliRunner

import shardcall as sc
from shardcall.cli.app import make_app
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.types.usage import PrincipalUsage
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


@pytest.mark.parametrize("call_stream", [False, True])
def test_an_expired_token_is_refused_with_its_date(running, call_stream):
    ada = running.make("ada")
    with running.connect(ada, call_stream=call_stream) as client:
        np.testing.assert_array_equal(client.diff(X).array, np.ones(7))
        running.expire(ada)
        with pytest.raises(sc.AccessDeniedError, match=f"token, of ada, {EXPIRED}; use its new token") as caught:
            client.diff(X)
        assert caught.value.reason == "TOKEN_REQUIRED"
        assert ada.token not in str(caught.value)
    with pytest.raises(sc.AccessDeniedError, match=EXPIRED):
        running.connect(ada)


def test_a_rotation_with_a_grace_period_does_not_disturb_a_client(running):
    ada = running.make("ada")
    now = datetime.now(UTC)
    with running.connect(ada) as before:
        kept = before.put(X)
        rotated = ada.rotate(now, timedelta(hours=1))
        running.write(rotated)
        assert (running.code(ada.token), running.code(rotated.token)) == (grpc.StatusCode.OK,) * 2
        with running.connect(rotated) as after:
            np.testing.assert_array_equal(after.get(kept.handle), X)
            np.testing.assert_array_equal(before.diff(X).array, np.ones(7))
            previous = replace(rotated.fields.previous, expires=PAST)
            running.write(replace(rotated, fields=replace(rotated.fields, previous=previous)))
            with pytest.raises(sc.AccessDeniedError, match=EXPIRED):
                before.diff(X)
            np.testing.assert_array_equal(after.diff(X).array, np.ones(7))


def test_two_principals_have_separate_limits(running):
    ada, bob = running.make("ada", max_arrays=2), running.make("bob", max_bytes=100)
    with running.connect(ada) as a, running.connect(ada) as other, running.connect(bob) as b:
        a.delete(*a.list(of_all_clients=True))
        mine = [a.put(X, name="u"), other.put(X)]
        for client in (a, other):
            with pytest.raises(
                sc.ResourceExhaustedError, match="max_arrays of ada in the server's token file"
            ) as caught:
                client.put(X)
            assert caught.value.reason == "RESIDENT_LIMIT"
        held = [b.put(X[:4]) for _ in range(3)]
        with pytest.raises(
            sc.ResourceExhaustedError, match="hold 96 bytes of the 100 bytes allowed by max_bytes of bob"
        ):
            b.put(X[:1])
        b.delete(held.pop())
        held.append(b.put(X[:4]))
        usage = a.usage().by_principal
        assert list(usage) == ["ada"]
        assert (usage["ada"].arrays, usage["ada"].max_arrays, usage["ada"].max_bytes) == (2, 2, None)
        running.write(replace(ada, fields=TokenFields(limits=PrincipalLimits(max_arrays=3))))
        mine.append(a.put(X))
        a.delete(*mine, *a.list(of_all_clients=True))


def test_usage_is_of_the_caller_or_with_the_scope_of_all(running, admin):
    limits = {"max_bytes": 1 << 20, "max_arrays": 9, "max_file_bytes": 5, "weight": 2}
    cara, dora = running.make("cara", **limits), running.make("dora", "run")
    with running.connect(cara) as client, running.connect(dora) as other:
        held = [client.put(X, name="u"), client.put(X)]
        client.cumsum(np.arange(5.0))
        client.cumsum(np.arange(5.0))
        mine = client.usage()
        theirs = other.usage()
        assert (mine.is_partial, theirs.is_partial, admin.usage().is_partial) == (True, True, False)
        assert list(mine.by_principal) == list(mine.principals) == ["cara"]
        assert list(theirs.by_principal) == ["dora"]
        assert (mine.arrays, mine.descriptors, dict(mine.kernels), mine.mesh.restarts) == (0, 0, {}, 0)
        assert mine.mesh.ready
        usage = mine.by_principal["cara"]
        assert usage == PrincipalUsage(2, 128, 1, usage.calls, usage.ended_calls, **limits)
        assert usage.ended_calls >= 4
        assert "cara: 2 of 9 arrays, 128 bytes of 1 MiB on the devices, 1 programs" in str(mine)
        everybody = admin.usage().by_principal
        assert everybody["cara"].array_bytes == 128
        assert everybody["dora"].arrays == 0
        assert set(running.entries) <= set(everybody)
        client.delete(*held)


def test_metrics_have_the_principals_of_the_file_and_others_as_one(running):
    cara, gone = running.make("cara"), running.make("gone-away")
    with running.connect(cara) as client, running.connect(gone) as other:
        client.delete(*client.list(of_all_clients=True))
        held = [client.put(X), other.put(X, name="stays")]
        labels = {"principal": "cara"}
        scraped = scrape(running.url)
        assert scraped.total("shardcall_principal_arrays", **labels) == 1
        assert scraped.total("shardcall_principal_array_bytes", **labels) == 64
        assert scraped.total("shardcall_principal_calls_total", **labels) >= 1
        assert scraped.values("principal") == set(running.entries)
        del running.entries["gone-away"], held
        running.write()
    scraped = scrape(running.url)
    assert scraped.values("principal") == {*running.entries, "other"}
    assert scraped.total("shardcall_principal_arrays", principal="other") >= 1
    assert scraped.total("shardcall_principal_calls_total", principal="other") >= 1


@rows(("arguments", "says"), [(["status"], "ada: 0 arrays, "), (["top", "--once", "--interval", "0.1"], "ada")])
def test_commands_show_the_caller_without_the_scope(running, arguments, says, monkeypatch):
    ada = running.make("ada")
    with running.connect(ada) as client:
        client.delete(*client.list(of_all_clients=True))
        client.diff(X)
    monkeypatch.setenv("SHARDCALL_TOKEN", ada.token)
    ended = command(arguments[0], running.server.address, *arguments[1:])
    assert ended.exit_code == 0, ended.output
    assert says in ended.output
    assert ADMIN not in ended.output

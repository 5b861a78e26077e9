"""The tests of `test_principals.py` that take long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import grpc
import numpy as np
import pytest
from end_to_end.scraping import metrics_url, scrape
from end_to_end.test_principals import ADMIN, EXPIRED, PAST, TokenServer, X, command
from rows import rows
from servers import running_server

import shardcall as sc
from shardcall_core.types.usage import PrincipalUsage
from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import PrincipalLimits, TokenFields
from shardcall_core.wire.token_file import Entry

pytestmark = pytest.mark.long


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

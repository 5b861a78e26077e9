"""Principals whose tokens expire and rotate, their limits, and what is shown of them."""

from dataclasses import replace

import numpy as np
import pytest
from end_to_end.principals import ADMIN
from end_to_end.scraping import scrape
from end_to_end.test_principals import X
from rows import rows
from typer.testing import CliRunner

import shardcall as sc
from shardcall.cli.app import make_app
from shardcall_core.types.usage import PrincipalUsage
from shardcall_core.wire.token_fields import PrincipalLimits, TokenFields

pytestmark = pytest.mark.long


def command(*arguments):
    return CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "160"})


def test_two_principals_have_separate_limits(principals):
    ada, bob = principals.make("ada", max_arrays=2), principals.make("bob", max_bytes=100)
    with principals.connect(ada) as a, principals.connect(ada) as other, principals.connect(bob) as b:
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
        principals.write(replace(ada, fields=TokenFields(limits=PrincipalLimits(max_arrays=3))))
        mine.append(a.put(X))
        a.delete(*mine, *a.list(of_all_clients=True))


def test_usage_is_of_the_caller_or_with_the_scope_of_all(principals, admin):
    limits = {"max_bytes": 1 << 20, "max_arrays": 9, "max_file_bytes": 5, "weight": 2}
    cara, dora = principals.make("cara", **limits), principals.make("dora", "run")
    with principals.connect(cara) as client, principals.connect(dora) as other:
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
        assert set(principals.entries) <= set(everybody)
        client.delete(*held)


def test_metrics_have_the_principals_of_the_file_and_others_as_one(principals):
    cara, gone = principals.make("cara"), principals.make("gone-away")
    with principals.connect(cara) as client, principals.connect(gone) as other:
        client.delete(*client.list(of_all_clients=True))
        held = [client.put(X), other.put(X, name="stays")]
        labels = {"principal": "cara"}
        scraped = scrape(principals.url)
        assert scraped.total("shardcall_principal_arrays", **labels) == 1
        assert scraped.total("shardcall_principal_array_bytes", **labels) == 64
        assert scraped.total("shardcall_principal_calls_total", **labels) >= 1
        assert scraped.values("principal") == set(principals.entries)
        del principals.entries["gone-away"], held
        principals.write()
    scraped = scrape(principals.url)
    assert scraped.values("principal") == {*principals.entries, "other"}
    assert scraped.total("shardcall_principal_arrays", principal="other") >= 1
    assert scraped.total("shardcall_principal_calls_total", principal="other") >= 1


@rows(("arguments", "says"), [(["status"], "ada: 0 arrays, "), (["top", "--once", "--interval", "0.1"], "ada")])
def test_commands_show_the_caller_without_the_scope(principals, arguments, says, monkeypatch):
    ada = principals.make("ada")
    with principals.connect(ada) as client:
        client.delete(*client.list(of_all_clients=True))
        client.diff(X)
    monkeypatch.setenv("SHARDCALL_TOKEN", ada.token)
    ended = command(arguments[0], principals.server.address, *arguments[1:])
    assert ended.exit_code == 0, ended.output
    assert says in ended.output
    assert ADMIN not in ended.output

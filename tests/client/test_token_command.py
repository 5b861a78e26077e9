"""``shardcall token``: principals with limits, their list, and new tokens."""

import json
import stat
from datetime import UTC, datetime, timedelta

import pytest
from rows import rows

from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import PrincipalLimits, TokenFields
from shardcall_core.wire.token_file import Entry

testing = pytest.importorskip("typer.testing")

from shardcall.cli.app import make_app  # noqa: E402  # only with typer

LIMITS = ["--max-bytes", "8GiB", "--max-arrays", "1000", "--max-file-bytes", "64GiB", "--weight", "3"]
TEXTS = "max_bytes=8GiB max_arrays=1000 max_file_bytes=64GiB weight=3"


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "state" / "token")


@pytest.fixture
def run(path):
    """Runs a subcommand with the token file; returns what it prints."""

    def run(*arguments, fails=False):
        command = ["token", *arguments, "--token-file", path]
        ended = testing.CliRunner().invoke(make_app(), command, env={"COLUMNS": "200"})
        assert bool(ended.exit_code) is fails, ended.output
        return ended.output

    return run


def entry(path, name) -> Entry:
    return token_file.entry_of(token_file.read(path), name)


def test_a_principal_is_added_with_an_expiry_and_limits(run, path):
    before = datetime.now(UTC).replace(microsecond=0)
    run("add", "ada", "--scopes", "run", "--expires", "30d", *LIMITS)
    ada = entry(path, "ada")
    assert ada.fields.limits == PrincipalLimits(8 << 30, 1000, 64 << 30, 3)
    assert before <= ada.fields.expires - timedelta(days=30) <= datetime.now(UTC)
    run("add", "bob", "--expires", "2100-01-01T00:00:00+01:00")
    assert entry(path, "bob").fields == TokenFields(datetime(2099, 12, 31, 23, tzinfo=UTC))
    run("add", "eve")
    assert entry(path, "eve").fields == TokenFields()


@rows(
    ("option", "value", "says"),
    [
        ("--expires", "soon", "--expires is 'soon'; give minutes, hours, days or weeks, such as 90m, 12h, 30d or 8w"),
        ("--max-bytes", "8GB", "--max-bytes is '8GB'; give a whole number of bytes from 0 to"),
        ("--max-arrays", "many", "--max-arrays is 'many'; give a whole number from 0 to"),
        ("--max-file-bytes", "-1", "--max-file-bytes is '-1'; give"),
        ("--weight", "0", "--weight is '0'; give a whole number from 1 to 100"),
    ],
)
def test_an_invalid_option_is_refused_and_nothing_is_written(run, path, option, value, says):
    run("list")
    before = token_file.read(path)
    assert says in run("add", "ada", f"{option}={value}", fails=True)
    assert token_file.read(path) == before


def test_the_list_has_all_but_tokens(run, path):
    run("add", "ada", "--expires", "2100-01-01T00:00:00Z", *LIMITS)
    run("rotate", "ada", "--grace", "1h")
    bob = Entry.make("bob", ["run"], TokenFields(datetime(2026, 1, 1, tzinfo=UTC)))
    token_file.replace(path, [*token_file.read(path), bob])
    user = token_file.user_name()
    lines = run("list").splitlines()
    ended = entry(path, "ada").fields.previous.expires.isoformat().replace("+00:00", "Z")
    assert lines == [
        f"{user} (token): {', '.join(token_file.DEFAULT_SCOPES)}",
        f"ada (token): run, arrays; expires 2100-01-01T00:00:00Z; the token before is valid until {ended}; "
        f"{TEXTS.replace(' ', '; ')}",
        "bob (token): run; EXPIRED at 2026-01-01T00:00:00Z",
        f"{user} (admin-token): {', '.join(token_file.SCOPES)}",
    ]
    printed = run("list", "--json")
    (ada,) = (record for record in json.loads(printed) if record["name"] == "ada")
    expiry = {"expires": "2100-01-01T00:00:00Z", "expired": False, "previous_expires": ended}
    limits = {"max_bytes": 8 << 30, "max_arrays": 1000, "max_file_bytes": 64 << 30, "weight": 3}
    assert ada == {"name": "ada", "file": "token", "scopes": ["run", "arrays"], **expiry, **limits}
    tokens = [token for record in token_file.read_both(path) for token, _ in record.tokens]
    assert len(tokens) == 5
    assert not any(token in "".join([printed, *lines]) for token in tokens)


def test_a_rotation_voids_the_old_token_and_keeps_the_rest(run, path, tmp_path):
    run("add", "ada", "--scopes", "run", "--expires", "2100-01-01T00:00:00Z", *LIMITS)
    before, others = entry(path, "ada"), run("list")
    said = run("rotate", "ada")
    after = entry(path, "ada")
    assert (after.scopes, after.fields) == (before.scopes, before.fields)
    assert after.token != before.token
    assert after.token not in said
    assert before.token not in (tmp_path / "state" / "token").read_text()
    assert run("list") == others
    assert stat.S_IMODE((tmp_path / "state" / "token").stat().st_mode) == 0o600
    assert sorted(file.name for file in (tmp_path / "state").iterdir()) == ["admin-token", "token"]


def test_a_rotation_may_keep_the_old_token_for_a_time_and_set_another_expiry(run, path):
    run("add", "ada")
    before, now = entry(path, "ada"), datetime.now(UTC).replace(microsecond=0)
    run("rotate", "ada", "--grace", "1h", "--expires", "8w")
    previous = entry(path, "ada").fields.previous
    assert previous.token == before.token
    assert now <= previous.expires - timedelta(hours=1) <= datetime.now(UTC)
    assert entry(path, "ada").fields.expires >= now + timedelta(weeks=8)
    run("rotate", "ada", "--expires", "never")
    assert entry(path, "ada").fields == TokenFields()


def test_the_token_of_all_scopes_is_rotated_in_the_other_file(run, path):
    run("list")
    first, admin = token_file.read_both(path)
    run("rotate", "--admin")
    assert token_file.read(path) == (first,)
    (after,) = token_file.read(token_file.admin_path(path))
    assert (after.name, after.scopes) == (admin.name, admin.scopes)
    assert after.token != admin.token


@rows(
    ("arguments", "says"),
    [
        (["rotate"], "give the NAME of a principal, or --admin"),
        (["rotate", "ada", "--admin"], "give the NAME of a principal, or --admin"),
        (["rotate", "nobody"], "there is no principal 'nobody'; there are: "),
        (["rotate", "nobody", "--grace", "long"], "--grace is 'long'; give minutes, hours, days or weeks"),
        (["rotate", "nobody", "--expires", "30"], "there is no principal 'nobody'"),
        (["show", "nobody"], "there is no principal 'nobody'; there are: "),
        (["show", "a", "--admin"], "leave out NAME, or --admin"),
    ],
)
def test_an_invalid_selection_of_a_token_is_refused(run, arguments, says):
    assert says in run(*arguments, fails=True)


def test_a_token_for_hosts_is_shown_as_the_worker_takes_it(run, monkeypatch):
    monkeypatch.setattr("shardcall.cli.token.is_terminal", lambda: True)
    said = run("add", "hosts", "--scopes", "host")
    assert "export SHARDCALL_TOKEN=" in said
    assert "shardcall worker --join" in said
    assert "shardcall.connect" not in said


def test_tokens_are_printed_where_they_were_asked_for(run, path):
    said = run("add", "bob", "--scopes", " run , arrays") + run()
    assert f"{path} holds the token of bob; print it with: shardcall token show bob\n" in said
    assert "bob: run, arrays\n" in said
    first, bob = token_file.read(path)
    (admin,) = token_file.read(token_file.admin_path(path))
    assert not any(entry.token in said for entry in (first, bob, admin))
    for arguments, entry in (((), first), (("bob",), bob), (("--admin",), admin)):
        assert run("show", *arguments) == f"{entry.token}\n"

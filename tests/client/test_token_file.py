"""The token file: permissions (others are in test_private_files.py), contents, fields and creation."""

import os
import stat
import threading
from datetime import UTC, datetime, timedelta

import pytest
from client.stream_server import in_threads
from rows import rows

from shardcall_core.wire import token_fields, token_file
from shardcall_core.wire.token_file import Entry, TokenFileError

TOKEN, OLD = "0123456789abcdef", "fedcba9876543210"
LINE = f"alice run,arrays {TOKEN}\n"


# Files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "shardcall" / "token"


@pytest.fixture
def written(path):
    """Writes the file as this user's own."""

    def write(text, mode=0o600):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return write


@pytest.fixture
def read(written):
    """Reads a file of a text."""
    return lambda text: token_file.read(written(text))


def test_lines_are_principals(read):
    entries = read(f"# who\n\n{LINE}  bob   admin   {TOKEN}-b # until May\n")
    assert entries == (Entry("alice", ("run", "arrays"), TOKEN), Entry("bob", ("admin",), f"{TOKEN}-b"))


def test_scopes_of_newer_versions_stay_in_the_file(read):
    (entry,) = read(f"alice run,fly {TOKEN}\n")
    assert entry.line() == f"alice run,fly {TOKEN}\n"


@rows(
    "text",
    [
        *("", "# nobody\n", "alice run\n", f"alice run {TOKEN} more\n", "alice run short\n", f"alice run {TOKEN}é\n"),
        *(f"alice Fly {TOKEN}\n", f"alice run,,arrays {TOKEN}\n", f"-alice run {TOKEN}\n", f"{'a' * 65} run {TOKEN}\n"),
        *(f"alice run {'t' * 513}\n", f"{LINE}alice run {TOKEN}2\n", f"{LINE}bob run {TOKEN}\n", f"{LINE}\0\n"),
        *(f"{TOKEN} alice run\n", LINE * 50_000),
    ],
)
def test_a_damaged_file_is_refused_and_its_tokens_are_not_shown(read, text):
    with pytest.raises(TokenFileError, match=r"token file .*/token.*(mend|remove|give|new)") as caught:
        read(text)
    assert TOKEN not in str(caught.value)


@rows(
    ("mode", "folder_mode", "says"),
    [(0o644, 0o700, "mode 0644 .*chmod 600 {0}"), (0o600, 0o775, "mode 0775 .*chmod go-w {0.parent};")],
)
def test_a_file_that_others_may_use_or_replace_is_refused_with_the_remedy(written, path, mode, folder_mode, says):
    file = written(LINE, mode)
    path.parent.chmod(folder_mode)
    with pytest.raises(TokenFileError, match=f"{says.format(path)}.*SHARDCALL_TOKEN_FILE"):
        token_file.read(file)


def test_a_created_file_is_its_users_alone(path):
    assert token_file.create_missing(str(path))
    (default, admin) = token_file.read_both(str(path))
    assert (default.scopes, admin.scopes) == (token_file.DEFAULT_SCOPES, token_file.SCOPES)
    assert default.name == admin.name
    assert default.token != admin.token
    assert len(default.token) == len(admin.token) == 43
    assert token_file.read(str(path)) == (default,)
    assert sorted(os.listdir(path.parent)) == ["admin-token", "token"]
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not token_file.create_missing(str(path))
    assert token_file.read_both(str(path)) == (default, admin)


def test_the_other_file_is_created_where_it_can_be(written, path):
    written(LINE)
    path.parent.chmod(0o500)
    try:
        assert not token_file.create_missing(str(path))
        assert token_file.read_both(str(path))[0].name == "alice"
    finally:
        path.parent.chmod(0o700)


def test_of_many_that_make_it_at_once_one_does(path):
    start = threading.Barrier(16)

    def make(_):
        start.wait()
        return token_file.create_missing(str(path))

    assert (sum(in_threads(16, make)), len(token_file.read_both(str(path)))) == (1, 2)
    assert sorted(os.listdir(path.parent)) == ["admin-token", "token"]


def test_where_no_file_can_be_written_the_error_says_what_to_do(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TokenFileError, match=r"SHARDCALL_TOKEN_FILE, or .* SHARDCALL_TOKEN"):
        token_file.create_missing(str(tmp_path / "file" / "token"))


def test_the_default_path_is_in_the_users_state_folder(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert token_file.usual_path() == "/state/shardcall/token"
    monkeypatch.setenv("HOME", "/alice")
    for useless in ("", "relative"):
        monkeypatch.setenv("XDG_STATE_HOME", useless)
        assert token_file.usual_path() == "/alice/.local/state/shardcall/token"


def test_the_users_entry_is_the_one_of_its_name():
    others = [Entry.make("a", ["run"]), Entry.make("b", ["run"])]
    entry = Entry.make(token_file.user_name(), ["run"])
    assert token_file.user_entry(others) is others[0]
    assert token_file.user_entry([*others, entry]) is entry


def test_no_repr_contains_a_token_or_the_one_before():
    entry = Entry("alice", ("run",), TOKEN)
    for shown in (repr(entry), f"{[entry]}", repr(entry.rotate(NOW, timedelta(days=1)))):
        assert TOKEN not in shown


# Fields


NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
LIMITS = token_fields.PrincipalLimits(max_bytes=8 << 30, max_arrays=1000, max_file_bytes=0, weight=2)
TEXTS = "expires=2027-01-01T00:00:00Z max_bytes=8GiB max_arrays=1000 max_file_bytes=0 weight=2"


def test_a_line_has_fields_in_any_order(read):
    text = f"ada run {TOKEN} weight=2 {' '.join(reversed(TEXTS.split()[:-1]))} # a guest\nbob run {OLD}\n"
    ada, bob = read(text)
    assert ada.fields == token_fields.TokenFields(NEW_YEAR, LIMITS)
    assert bob.fields == token_fields.TokenFields(None, token_fields.NO_LIMITS)


@rows("text", ["2027-01-01T01:00:00+01:00", "2026-12-31T19:00-05:00", "20270101T000000Z", "2027-01-01T00Z"])
def test_an_expiry_is_a_moment_in_any_zone(read, text):
    assert read(f"ada run {TOKEN} expires={text}\n")[0].fields.expires == NEW_YEAR


def test_a_file_is_written_as_it_is_read(tmp_path):
    path = str(tmp_path / "token")
    ada = Entry.make("ada", ("run",), token_fields.TokenFields(NEW_YEAR, LIMITS)).rotate(NOW, timedelta(hours=1))
    token_file.create(path, [ada, Entry("bob", ("run", "arrays"), TOKEN)])
    assert token_file.read(path)[0] == ada
    lines = (tmp_path / "token").read_text().splitlines()
    assert lines[1].startswith(f"ada run {ada.token} {TEXTS} previous=")
    assert lines[1].endswith(" previous_expires=2026-11-27T13:00:00Z")
    assert lines[2] == f"bob run,arrays {TOKEN}"


ZONE = "give a date and time with the zone, such as 2027-01-31T00:00:00Z"
BYTES = "give a whole number of bytes from 0 to 1152921504606846976, also in KiB, MiB, GiB or TiB, such as 8GiB"
COUNT = "give a whole number from 0 to 1152921504606846976, such as 1000"
NO_MOMENTS = ("2027-01-01", "2027-01-01T00:00:00", "0001-01-01T00:00:00+12:00")
BAD_FIELDS = [
    *((f"expires={text}", f"expires is '{text}'; {ZONE}") for text in NO_MOMENTS),
    *((f"max_bytes={text}", f"max_bytes is '{text}'; {BYTES}") for text in ("8GB", "-1", "2000000TiB", "٣")),
    ("max_file_bytes=all", f"max_file_bytes is 'all'; {BYTES}"),
    *((f"max_arrays={text}", f"max_arrays is '{text}'; {COUNT}") for text in ("1KiB", "")),
    *((f"weight={text}", f"weight is '{text}'; give a whole number from 1 to 100, such as 2") for text in ("0", "101")),
    ("weight=2 weight=2", "weight comes twice; give it once"),
    ("wait=2", "field 4 is none of expires, max_bytes, max_arrays, max_file_bytes, weight, previous"),
    ("weight=2 more", "field 5 is none of expires, "),
    (f"previous={OLD}", "one of previous and previous_expires is missing; give both or neither"),
    ("previous=short previous_expires=2027-01-01T00:00:00Z", "previous is no token: it is too short, 5 characters"),
    (f"previous={OLD} previous_expires=soon", f"previous_expires is 'soon'; {ZONE}"),
    (f"previous={TOKEN} previous_expires=2027-01-01T00:00:00Z", "repeats a name or a token"),
    (f"previous={'b' * 16} previous_expires=2027-01-01T00:00:00Z", "repeats a name or a token"),
    (f"weight={OLD}", "weight is a text of 16 characters; give a whole number"),
]


@rows(("texts", "says"), BAD_FIELDS)
def test_an_invalid_field_is_refused_by_its_line_and_name(read, texts, says):
    with pytest.raises(TokenFileError) as caught:
        read(f"bob run {'b' * 16}\nada run {TOKEN} {texts}\n")
    assert str(caught.value).startswith("line 2 of the token file ")
    assert says in str(caught.value)
    assert not any(token in str(caught.value) for token in (TOKEN, OLD))


def test_a_rotation_voids_the_token_at_once_or_after_a_grace_period():
    ada = Entry("ada", ("run",), TOKEN, token_fields.TokenFields(NEW_YEAR, LIMITS))
    at_once = ada.rotate(NOW, timedelta())
    assert at_once.tokens == ((at_once.token, NEW_YEAR),)
    assert at_once.token != TOKEN
    assert at_once.fields.limits == LIMITS
    later = ada.rotate(NOW, timedelta(hours=1))
    assert later.tokens == ((later.token, NEW_YEAR), (TOKEN, NOW + timedelta(hours=1)))
    assert later.rotate(NOW, timedelta(minutes=5)).tokens[1] == (later.token, NOW + timedelta(minutes=5))
    assert ada.rotate(NOW, timedelta(days=99)).tokens[1] == (TOKEN, NEW_YEAR)
    assert len(ada.rotate(NEW_YEAR, timedelta(days=1)).tokens) == 1


@rows(("text", "hours"), [("90m", 1.5), ("12h", 12), ("30d", 720), ("8w", 1344)])
def test_an_expiry_may_be_a_duration_from_now_a_moment_or_never(text, hours):
    assert token_fields.parse_duration("grace", text) == timedelta(hours=hours)
    assert token_fields.parse_expiry("--expires", text, NOW) == NOW + timedelta(hours=hours)
    assert token_fields.parse_expiry("--expires", "2027-01-01T00:00:00Z", NOW) == NEW_YEAR
    assert token_fields.parse_expiry("--expires", "never", NOW) is None


ANY_EXPIRY = "give minutes, .* 30d .*, a date and time .*, or never$"


@rows(
    ("text", "says"),
    [
        *((text, ANY_EXPIRY) for text in ("", "30", "d", "0d", "-1d", "1y", "100000d", "1.5h", "soon", "2027-01-01")),
        ("2026-01-01T00:00:00Z", "which is in the past"),
    ],
)
def test_what_is_no_expiry_is_refused(text, says):
    with pytest.raises(token_fields.FieldError, match=f"^--expires is '{text}'[;,] {says}"):
        token_fields.parse_expiry("--expires", text, NOW)


@rows(
    ("nbytes", "text"),
    [(0, "0"), (1023, "1023"), (1024, "1KiB"), (3 << 20, "3MiB"), (8 << 30, "8GiB"), (1 << 50, "1024TiB")],
)
def test_sizes_are_short_texts(nbytes, text):
    assert token_fields.size_text(nbytes) == text

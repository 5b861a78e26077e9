"""The token file: permissions (others are in test_private_files.py), contents and creation."""

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from rows import rows

from shardcall_core.wire import token_file
from shardcall_core.wire.token_file import Entry, TokenFileError

TOKEN = "0123456789abcdef"
LINE = f"alice run,arrays {TOKEN}\n"


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


def test_lines_are_principals(written):
    read = token_file.read(written(f"# who\n\n{LINE}  bob   admin   {TOKEN}-b # until May\n"))
    assert [(entry.name, entry.scopes, entry.token) for entry in read] == [
        ("alice", ("run", "arrays"), TOKEN),
        ("bob", ("admin",), f"{TOKEN}-b"),
    ]


@rows(
    "text",
    [
        *("", "# nobody\n", "alice run\n", f"alice run {TOKEN} more\n", "alice run short\n", f"alice run {TOKEN}é\n"),
        *(f"alice fly {TOKEN}\n", f"alice run,,arrays {TOKEN}\n", f"-alice run {TOKEN}\n", f"{'a' * 65} run {TOKEN}\n"),
        *(f"alice run {'t' * 513}\n", f"{LINE}alice run {TOKEN}2\n", f"{LINE}bob run {TOKEN}\n", f"{LINE}\0\n"),
        *(f"{TOKEN} alice run\n", LINE * 50_000),
    ],
)
def test_a_damaged_file_is_refused_and_its_tokens_are_not_shown(written, text):
    with pytest.raises(TokenFileError, match=r"token file .*/token.*(mend|remove|give|new)") as caught:
        token_file.read(written(text))
    assert TOKEN not in str(caught.value)


@rows("mode", [0o640, 0o604, 0o660, 0o620, 0o601, 0o644])
def test_a_file_that_others_may_use_is_refused_with_the_remedy(written, mode):
    path = written(LINE, mode)
    with pytest.raises(TokenFileError, match=f"mode {mode:04o} .*chmod 600 {path}.*SHARDCALL_TOKEN_FILE"):
        token_file.read(path)


@rows("mode", [0o777, 0o1777, 0o775, 0o720, 0o702])
def test_a_file_in_a_folder_that_others_may_write_is_refused_with_the_remedy(written, path, mode):
    file = written(LINE)
    path.parent.chmod(mode)
    with pytest.raises(TokenFileError, match=f"mode {mode:04o} .*chmod go-w {path.parent};.*SHARDCALL_TOKEN_FILE"):
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
    threads = 16
    start = threading.Barrier(threads)

    def make(_):
        start.wait()
        return token_file.create_missing(str(path))

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(make, range(threads))) == 1
    assert len(token_file.read_both(str(path))) == 2
    assert sorted(os.listdir(path.parent)) == ["admin-token", "token"]


def test_a_file_is_replaced_atomically(written, path):
    token_file.replace(written(LINE), [Entry.make("carol", ["run"])])
    assert [entry.name for entry in token_file.read(str(path))] == ["carol"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["token"]


def test_no_token_is_written_to_a_folder_that_others_may_write_to(path):
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o1777)
    with pytest.raises(TokenFileError, match=f"no token file can be written as {path}: the folder .* has mode 1777"):
        token_file.create_missing(str(path))
    assert os.listdir(path.parent) == []


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


def test_no_repr_contains_a_token():
    entry = Entry("alice", ("run",), TOKEN)
    assert TOKEN not in repr(entry)
    assert TOKEN not in f"{[entry]}"

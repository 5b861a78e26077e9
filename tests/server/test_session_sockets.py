"""The private sockets of a server: their names, the users that get a session token, and silent connections."""

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest
from rows import rows
from server.other_user import BECOME_NOBODY, NEEDS_ROOT, answer_to_nobody

from shardcall_core.access.addresses import parse_address
from shardcall_core.access.session import UNKNOWN, open_session
from shardcall_core.wire import token_file
from shardcall_server.frontend.access.ports import listen, session_names
from shardcall_server.frontend.access.session_sockets import SessionSockets, open_session_sockets
from shardcall_server.frontend.access.tokens import FileTokens, Tokens
from shardcall_server.settings import SettingsError
from shardcall_server.settings_sources import load_settings


@rows(
    ("bound", "names"),
    [
        (["127.0.0.1", "::1"], ["127.0.0.1", "::1", "localhost"]),
        (["127.0.0.1"], ["127.0.0.1"]),
        (["::1"], ["::1"]),
        (["0.0.0.0"], ["127.0.0.1"]),
        (["::"], ["127.0.0.1", "::1", "localhost"]),
        (["::ffff:127.0.0.1", "127.0.0.9"], ["127.0.0.1", "127.0.0.9"]),
    ],
)
def test_a_server_has_a_name_for_every_address_that_it_alone_serves(bound, names):
    with ExitStack() as stack:
        port = 0
        for host in bound:
            listener = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            if ":" in host:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host == "::1")
            listener.bind((host, port))
            listener.listen()
            port = listener.getsockname()[1]
        assert session_names(f"{bound[0]}:{port}") == [f"{name}:{port}" for name in names]


def test_an_address_of_another_process_gets_no_name():
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert session_names(f"127.0.0.1:{int(other.stdout.readline())}") == []
        other.stdin.close()


def test_a_unix_socket_has_a_name_too(tmp_path):
    assert [name[:5] for name in session_names("127.0.0.1:1", str(tmp_path / "socket"))] == ["unix:"]


@pytest.fixture
def serve_at():
    """Has a gRPC server listen, at a port of the system's choosing."""
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        yield lambda **settings: listen(server, load_settings({"port": 0, **settings}))
        server.stop(None).wait()


@rows("host", ["LOCALHOST", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]"])
def test_other_forms_of_loopback_addresses_need_no_encryption(serve_at, host):
    port = serve_at(host=host, auth=False).rpartition(":")[2]
    assert session_names(f":{port}")[0] == f"127.0.0.1:{port}"


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_unix_socket_is_this_users_alone_where_others_cannot_replace_it(serve_at, short_folder, mode):
    short_folder.chmod(mode)
    serve_at(unix_socket=f"{short_folder}/socket")
    assert (short_folder / "socket").stat().st_mode & 0o777 == 0o600


@rows("mode", [0o777, 0o770])
def test_a_unix_socket_that_others_may_replace_is_refused(serve_at, short_folder, mode):
    short_folder.chmod(mode)
    with pytest.raises(SettingsError, match=f"the folder {short_folder} has mode {mode:04o} .*chmod go-w"):
        serve_at(unix_socket=f"{short_folder}/socket")
    assert os.listdir(short_folder) == []


def test_a_unix_socket_without_a_folder_is_refused(serve_at, short_folder):
    with pytest.raises(SettingsError, match=r"unix_socket is .*No such file or directory; choose another --unix-soc"):
        serve_at(unix_socket=f"{short_folder}/none/socket")


NAMES = ["localhost:8470", "127.0.0.1:8470"]
LOCAL = parse_address("localhost:8470")
_PATIENCE_S = 60.0


@pytest.fixture
def parent(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_folder))
    return str(short_folder)


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[FileTokens]:
    with closing(FileTokens(str(tmp_path / "token"))) as file_tokens:
        yield file_tokens


@pytest.fixture
def user_token(tokens: FileTokens, tmp_path: Path) -> str:
    return token_file.read(str(tmp_path / "token"))[0].token


@pytest.fixture
def sockets(parent: str, tokens: FileTokens) -> Iterator[SessionSockets]:
    opened = open_session_sockets(NAMES, tokens, [parent])
    assert opened
    with closing(opened):
        yield opened


def path_of(parent: str, name: str) -> str:
    (folder,) = Path(parent).iterdir()
    return str(folder / name)


def test_a_token_is_exchanged_at_every_name(sockets, tokens, user_token):
    for address in NAMES:
        assert open_session(parse_address(address), user_token, _PATIENCE_S) == tokens.session_of(user_token)
    assert open_session(LOCAL, "x" * 43, _PATIENCE_S) == ""
    assert open_session(parse_address("localhost:8471"), user_token, _PATIENCE_S) is None


def test_the_sockets_are_this_users_alone_and_gone_at_the_end(sockets, parent, user_token):
    (folder,) = Path(parent).iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    sockets.close()
    sockets.close()
    assert os.listdir(parent) == []
    assert open_session(LOCAL, user_token, _PATIENCE_S) is None


def test_the_sockets_of_a_server_that_was_killed_are_skipped(parent, tokens, user_token):
    left = Path(tempfile.mkdtemp(prefix="shardcall-", dir=parent))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(left / NAMES[0]))
        listener.listen()
    with closing(open_session_sockets(NAMES, tokens, [parent])):
        os.utime(left)  # the newest
        assert open_session(LOCAL, user_token, _PATIENCE_S) == tokens.session_of(user_token)


def test_there_are_none_where_clients_find_no_token_or_no_directory_will_do(parent, tokens):
    assert open_session_sockets(NAMES, None, [parent]) is None
    assert open_session_sockets(NAMES, Tokens([]), [parent]) is None
    before = len(os.listdir("/proc/self/fd"))
    too_long = Path(parent, "a" * 60)
    too_long.mkdir()
    assert open_session_sockets(NAMES, tokens, [f"{parent}/none", "/proc", str(too_long)]) is None
    assert len(os.listdir("/proc/self/fd")) <= before
    assert os.listdir(too_long) == []


def test_a_silent_connection_blocks_no_others(sockets, parent, tokens, user_token):
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        for _ in range(200):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            silent.connect(path_of(parent, NAMES[0]))
        assert open_session(LOCAL, user_token, _PATIENCE_S) == tokens.session_of(user_token)
        assert len(os.listdir("/proc/self/fd")) < before + 200 + 80


@rows("packet", [b"\xff\x00", b"x" * 4096])
def test_what_is_no_token_is_unknown(sockets, parent, packet):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as visitor:
        visitor.settimeout(_PATIENCE_S)
        visitor.connect(path_of(parent, NAMES[0]))
        visitor.send(packet)
        assert visitor.recv(64) == UNKNOWN


_IMPOSTOR = f"""
import os, socket, sys
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
{BECOME_NOBODY}
listener.listen()
print("listening", flush=True)
print(listener.accept()[0].recv(512), flush=True)
"""


@NEEDS_ROOT
@pytest.mark.parametrize(("is_open", "outcome"), [(False, "PermissionError"), (True, "b''")])
def test_another_user_who_knows_the_token_gets_no_session(sockets, parent, user_token, is_open, outcome):
    os.chmod(parent, 0o755)
    path = path_of(parent, NAMES[0])
    if is_open:  # so that only the check of the connection's user protects it
        os.chmod(Path(path).parent, 0o755)
        os.chmod(path, 0o666)
    assert answer_to_nobody("SOCK_SEQPACKET", path, user_token.encode()) == outcome


@NEEDS_ROOT
def test_a_socket_at_which_another_user_listens_is_shown_nothing(parent, user_token):
    folder = tempfile.mkdtemp(prefix="shardcall-", dir=parent)
    command = [sys.executable, "-c", _IMPOSTOR, f"{folder}/{NAMES[0]}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as impostor:
        assert impostor.stdout
        assert impostor.stdout.readline() == "listening\n"
        assert open_session(LOCAL, user_token, _PATIENCE_S) is None
        assert impostor.stdout.readline() == "b''\n"

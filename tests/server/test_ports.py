"""The names of a server's session sockets, which follow from the addresses that it alone serves."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest
from rows import rows

from shardcall_server.frontend.access.ports import listen, session_names
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
        port = int(other.stdout.readline())
        assert session_names(f"127.0.0.1:{port}") == []
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

"""The names of the session sockets of a server: of the addresses at which it alone is met."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from shardcall_server.frontend.access.ports import session_names


@pytest.mark.parametrize(
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
def test_a_server_has_a_name_for_each_address_at_which_it_alone_is_met(bound, names):
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


def test_what_another_process_listens_at_is_none_of_its_own(server):
    assert session_names(server.address) == []


def test_a_unix_socket_has_a_name_too(tmp_path):
    assert [name[:5] for name in session_names("127.0.0.1:1", str(tmp_path / "socket"))] == ["unix:"]

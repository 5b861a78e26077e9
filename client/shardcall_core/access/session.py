"""Exchanges this user's token for a session token, at a private Unix socket of the server.

Anybody may bind a TCP port after its server has exited. The client therefore sends the token of the user's file to a
socket in a folder that this user alone may enter, and only to a process of this user. To the port it sends a session
token, which is worthless after the server's process has exited.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
import sys

from shardcall_core.access.addresses import Address, is_localhost, parse_ip
from shardcall_core.wire.private_sockets import peer_of, user_folders

UNKNOWN = b"unknown"
"""The answer to a token that the server does not know; a session token is longer."""
LONGEST_NAME = 64
"""The most characters of a name of `socket_name`."""

_LONGEST_ANSWER = 1024
_PROBE_S = 0.2
_PORT = re.compile(r"^[^/]+:\d+$")


def socket_name(address: Address) -> str:
    """Returns the name of the socket in its folder: a server has one for each address at which it alone listens."""
    if address.is_socket:
        path = address.target.removeprefix("unix:")
        path = os.path.realpath(path.removeprefix("//") if path.startswith("//") else path)
        return "unix:" + hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    host = "localhost" if is_localhost(address.host) else parse_ip(address.host).compressed
    return f"{host}:{address.port}"


def open_session(address: Address, token: str, timeout_s: float) -> str | None:
    """Exchanges a token.

    Args:
        address: the address of a server on this machine.
        token: the token of the user's file.
        timeout_s: the timeout in seconds.

    Returns:
        The session token; empty if the server does not know the token, None if no server of this user listens at the
        address.
    """
    if sys.platform != "linux":  # servers run on Linux only
        return None
    name = socket_name(address)
    for folder in user_folders():
        try:
            return _exchange(os.path.join(folder, name), token, timeout_s)
        except OSError:  # a server of another address, or one that was killed
            continue
    return None


def user_addresses() -> list[str]:
    """Returns the addresses on this machine at which servers of this user listen, those of the newest server first.

    For a server at several addresses, the shortest one is returned, such as ``"localhost:8470"``.
    """
    if sys.platform != "linux":
        return []
    addresses: list[str] = []
    for folder in user_folders():
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(folder) if _PORT.search(name) and _listens(os.path.join(folder, name))]
            ports = {name.rpartition(":")[2]: name for name in sorted(names, key=_rank, reverse=True)}
            addresses += ports.values()
    return addresses


def _rank(name: str) -> tuple[bool, bool]:
    return not name.startswith("localhost:"), name.startswith("::")


def _listens(path: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_PROBE_S)
        connection.connect(path)
        return peer_of(connection)[1] == os.geteuid()
    return False


def _exchange(path: str, token: str, timeout_s: float) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(max(timeout_s, 1e-3))
        connection.connect(path)
        if peer_of(connection)[1] != os.geteuid():
            raise PermissionError(path)
        connection.send(token.encode())
        answer = connection.recv(_LONGEST_ANSWER)
        if not answer:
            raise ConnectionResetError(path)
        return "" if answer == UNKNOWN else answer.decode("ascii")

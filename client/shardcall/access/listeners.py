"""Whose programs listen at an address of this machine."""

from __future__ import annotations

import ipaddress
import os
import sys

from shardcall.access.addresses import Address

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"


def is_own(address: Address) -> bool:
    """Whether programs of this user alone listen there; where the system does not tell, whether it is this machine.

    Anybody may take a port that is free, and wait there for what comes.
    """
    if not address.is_local:
        return False
    if not hasattr(os, "geteuid"):
        return True
    try:
        if address.target.startswith("unix:"):
            return os.stat(_path(address.target)).st_uid == os.geteuid()
        if sys.platform != "linux":
            return True
        return _users_at(int(address.target.rpartition(":")[2])) == {os.geteuid()}
    except OSError:
        return False


def _path(target: str) -> str:
    path = target.removeprefix("unix:")
    return path.removeprefix("//") if path.startswith("//") else path


def _users_at(port: int) -> set[int]:
    """The users who listen on a port of this machine's loopback, by whichever of its addresses."""
    users: set[int] = set()
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:
                next(file)
                for row in file:
                    columns = row.split()
                    if columns[3] != _LISTENING:
                        if users:  # those that listen come first, and there may be very many others
                            break
                        continue
                    host, _, number = columns[1].rpartition(":")
                    if int(number, 16) == port and _is_loopback(host):
                        users.add(int(columns[7]))
        except FileNotFoundError:  # a kernel without IPv6
            continue
    return users


def _is_loopback(host: str) -> bool:
    """Whether an address, as the kernel writes it, is one by which this machine reaches itself."""
    words = [host[begin : begin + 8] for begin in range(0, len(host), 8)]
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    found = ipaddress.ip_address(packed)
    inner = getattr(found, "ipv4_mapped", None) or found
    return bool(inner.is_loopback or inner.is_unspecified)

"""Addresses of servers."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass

from shardcall_core.types.errors import InvalidRequestError

ADDRESS_VARIABLE = "SHARDCALL_ADDRESS"
# TCP, since streams over a Unix socket are 15 to 25 % slower: Linux gives such a socket a send buffer of 208 KiB and
# TCP one of up to 4 MiB, and gRPC does not set its size.
USUAL_ADDRESS = "localhost:8470"
"""The address of a server that was started without an address and a port."""

_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[A-Za-z0-9_.-]+):(?P<port>[0-9]{1,5})")
_FORMS = 'give "host:port", such as "localhost:8470", or "unix:/path/to/socket"'


@dataclass(frozen=True)
class Address:
    """The address of a server.

    Attributes:
        target: the address in gRPC's form.
        is_local: True for this machine.
        host: the name or IP address, without brackets; empty for a Unix socket.
        port: the port; 0 for a Unix socket.
    """

    target: str
    is_local: bool
    host: str = ""
    port: int = 0

    @property
    def is_socket(self) -> bool:
        """True for a Unix socket."""
        return not self.host


def default_address() -> str:
    """Returns the address of the environment variable, else the usual one of this machine.

    Raises:
        InvalidRequestError: if the variable is not an address.
    """
    address = os.environ.get(ADDRESS_VARIABLE) or USUAL_ADDRESS
    try:
        parse_address(address)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"the environment variable {ADDRESS_VARIABLE}: {error}", field="address") from None
    return address


def parse_address(address: str) -> Address:
    """Returns the address in a caller's string.

    Raises:
        InvalidRequestError: if the string is not an address.
    """
    if not isinstance(address, str):
        raise _refusal(address, _FORMS)
    if "://" in address and not address.startswith("unix:"):
        raise _refusal(address, f"leave out the scheme and {_FORMS}")
    if address.startswith("unix:"):
        if not address.removeprefix("unix:").removeprefix("//"):
            raise _refusal(address, _FORMS)
        return Address(address, is_local=True)
    match = _HOST_AND_PORT.fullmatch(address)
    if not match:
        raise _refusal(address, _FORMS)
    if not 1 <= int(match["port"]) <= 65535:
        raise _refusal(address, "a port is 1 to 65535")
    host = match["host"].strip("[]")
    return Address(address, is_loopback(host), host, int(match["port"]))


def is_loopback(host: str) -> bool:
    """Returns whether only programs on this machine can reach a host: ``localhost``, or a loopback address."""
    if is_localhost(host):
        return True
    try:
        return parse_ip(host).is_loopback
    except ValueError:
        return False


def is_localhost(host: str) -> bool:
    """Returns whether a host is the name ``localhost``, in upper or lower case."""
    return host.lower() == "localhost"


def parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Returns an IP address; the IPv4 address of one that is mapped, such as ``::ffff:127.0.0.1``.

    Raises:
        ValueError: the host is no IP address.
    """
    address = ipaddress.ip_address(host.strip("[]"))
    return getattr(address, "ipv4_mapped", None) or address


def _refusal(address: object, advice: str) -> InvalidRequestError:
    return InvalidRequestError(f"{address!r} is no address of a server; {advice}", field="address")

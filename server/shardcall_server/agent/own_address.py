"""The addresses of this host."""

from __future__ import annotations

import socket

from shardcall._src.access.addresses import Address


def free_port(address: str) -> int:
    """A port of this host's address that nobody has at this moment; who comes later must be ready to find it taken.

    Returns 0 where the address is none of this host's own, as behind a translation of addresses.
    """
    with socket.socket(_family(address), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def address_towards(server: Address) -> str:
    """The address by which this host reaches a server, and so by which others on that network reach this host.

    Raises:
        OSError: the server's name leads nowhere.
    """
    for family, kind, protocol, _, target in socket.getaddrinfo(server.host, server.port, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(target)  # of a datagram socket: nothing is sent
            except OSError:
                continue
            return str(probe.getsockname()[0])
    raise OSError(f"no way leads to {server.host}")


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET

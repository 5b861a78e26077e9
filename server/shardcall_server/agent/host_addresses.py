"""The addresses of this host."""

from __future__ import annotations

import socket

from shardcall_core.access.addresses import Address


def free_port(address: str) -> int:
    """Returns a port that is free at this host's address now, though another process may take it; 0 if there is none.

    The address may belong to another host, as behind network address translation.
    """
    with socket.socket(_family(address), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return 0
        return int(probe.getsockname()[1])


def address_towards(server: Address) -> str:
    """Returns the address from which this host reaches a server, at which others on that network reach this host.

    Raises:
        OSError: the server is unreachable.
    """
    for family, socket_type, protocol, _, target in socket.getaddrinfo(
        server.host, server.port, type=socket.SOCK_DGRAM
    ):
        with socket.socket(family, socket_type, protocol) as probe:
            try:
                probe.connect(target)  # of a datagram socket: nothing is sent
            except OSError:
                continue
            return str(probe.getsockname()[0])
    raise OSError(f"no route to {server.host}")


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET

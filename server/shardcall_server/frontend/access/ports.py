"""Listening addresses of the server: which need tokens or TLS, and errors about ports in use."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import grpc

from shardcall_core.access.addresses import is_localhost, is_loopback, parse_address
from shardcall_core.access.session import socket_name
from shardcall_core.wire.private_files import PrivateFileError, open_guarded_folder
from shardcall_server.frontend.access.certificates import Certificates
from shardcall_server.settings import Settings, SettingsError

_Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_MAX_PATH_BYTES = 107  # of a Unix socket's address


def session_names(address: str, unix_socket: str = "") -> list[str]:
    """Returns the names of a server's session sockets, one for each local address that only this server serves.

    Args:
        address: the listening address, "host:port"; only the port is used, the hosts are read from the system.
        unix_socket: the path of the server's Unix socket; empty for none.
    """
    port = int(address.rpartition(":")[2])
    bound = _bound_addresses(port)
    hosts = {str(ip) for ip in bound if ip.is_loopback}
    if any(ip.is_unspecified for ip in bound):
        hosts.add("127.0.0.1")
    if ipaddress.IPv6Address("::") in bound:
        hosts.add("::1")
    # Another user may listen at the one of the two addresses that this server does not use.
    if "127.0.0.1" in hosts and ("::1" in hosts or not _has_ipv6_loopback()):
        hosts.add("localhost")
    addresses = [f"{bracket(host)}:{port}" for host in sorted(hosts)]
    addresses += [f"unix:{os.path.abspath(unix_socket)}"] if unix_socket else []
    return [socket_name(parse_address(address)) for address in addresses]


def _bound_addresses(port: int) -> set[_Ip]:
    """Returns the addresses at which this process listens on a port; mapped IPv4 addresses as IPv4."""
    inodes = {_link(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    return {ip for ip, inode in _listening(port) if f"socket:[{inode}]" in inodes}


def listen_for_hosts(server: grpc.Server, settings: Settings) -> str:
    """Binds the addresses at which hosts join, as `listen` does, without a Unix socket."""
    certificates = Certificates(settings) if settings.tls_cert else None
    return _listen(server, settings.host, settings.hosts_port, certificates, "--hosts-port")


def listen(server: grpc.Server, settings: Settings) -> str:
    """Binds the server's addresses; returns the first as "host:port".

    With TLS, only the Unix socket, which file permissions protect, is served without encryption.

    Raises:
        SettingsError: the port is in use, and by which process; the address is not one of this host; other machines can
            reach it without TLS and authentication, and that is not enabled; or the TLS files are invalid.
    """
    _refuse_unguarded(settings)
    certificates = Certificates(settings) if settings.tls_cert else None
    if settings.unix_socket:
        _bind_unix(server, settings.unix_socket)
    return _listen(server, settings.host, settings.port, certificates)


def _listen(
    server: grpc.Server, host: str, port: int, certificates: Certificates | None, option: str = "--port"
) -> str:
    if not is_localhost(host):
        return f"{bracket(host)}:{_bind(server, host, port, certificates, option)}"
    port = _bind(server, "127.0.0.1", port, certificates, option)
    if _has_ipv6_loopback():
        _bind(server, "::1", port, certificates, option)
    return f"127.0.0.1:{port}"


def _refuse_unguarded(settings: Settings) -> None:
    """Refuses an address that other machines can reach without TLS and authentication."""
    # Certificates do not distinguish hosts, which receive the operands of all clients, from clients.
    authenticates = settings.auth or (settings.tls_client_ca and not settings.hosts)
    if is_loopback(settings.host) or settings.insecure_allow_remote or (settings.tls_cert and authenticates):
        return
    lacks = "authentication" if settings.tls_cert else "TLS" if authenticates else "TLS and authentication"
    lacks += " of hosts" if settings.tls_client_ca else ""
    remedies = [] if settings.tls_cert else ["make certificates with `shardcall certificates`"]
    remedies += [] if authenticates else ["leave out --no-auth"]
    raise SettingsError(
        f"setting host is {settings.host!r}, which other machines may reach, and this server lacks {lacks}; "
        f"use localhost, {' and '.join(remedies)}, or add --insecure-allow-remote on a network that you trust"
    )


def _bind(server: grpc.Server, host: str, port: int, certificates: Certificates | None, option: str) -> int:
    _probe(host, port, option)
    address = f"{bracket(host)}:{port}"
    try:
        if certificates is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, certificates.server_credentials())
    except RuntimeError:
        bound = 0
    if bound:
        return bound
    if certificates is not None:
        _probe(host, port, option)  # if the address is still free, it is not the cause
        raise SettingsError(
            f"--tls-cert is {certificates.path!r}, which gRPC cannot serve with the key of --tls-key, perhaps because "
            "it has no host name; use server.pem and server.key as `shardcall certificates` makes them"
        )
    raise SettingsError(f"cannot listen on {bracket(host)}:{port}; choose another {option}")


def _bind_unix(server: grpc.Server, path: str) -> None:
    """Listens on a Unix socket to which only this user can connect, and which no other user can replace."""
    try:
        os.close(open_guarded_folder(os.path.dirname(os.path.abspath(path)), allow_sticky=True))
    except (OSError, PrivateFileError) as error:
        raise SettingsError(f"unix_socket is {path!r}: {error.strerror}; choose another --unix-socket") from None
    _remove_abandoned(path)
    before = os.umask(0o177)
    try:
        bound = server.add_insecure_port(f"unix:{os.path.abspath(path)}")
    except RuntimeError:
        bound = 0
    finally:
        os.umask(before)
    if not bound:
        raise SettingsError(
            f"cannot listen on the Unix socket {path!r}; choose a --unix-socket of at most {_MAX_PATH_BYTES} bytes in "
            "a writable directory"
        )


def _remove_abandoned(path: str) -> None:
    """Removes the socket of a server that was killed.

    Raises:
        SettingsError: the socket is in use, or the path is not a socket.
    """
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            if is_socket:
                os.unlink(path)
                return
        except OSError:
            pass
    raise SettingsError(f"unix_socket is {path!r}, which is in use or not a socket; choose another --unix-socket")


def _probe(host: str, port: int, option: str) -> None:
    """Binds an address and releases it, since gRPC does not report why it could not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise SettingsError(
                    f"port {port} is in use{_port_user(port)}; stop that program or choose another {option} "
                    "(0 lets the system choose)"
                ) from None
            raise SettingsError(
                f"cannot listen on {host}:{port}: {error.strerror}; use an address of this host"
            ) from None


def bracket(host: str) -> str:
    """Returns a host as it is written before a port: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _port_user(port: int) -> str:
    """Returns " by NAME (process PID)" for the process that listens on a port; empty if it is not visible."""
    inodes = {f"socket:[{inode}]" for _, inode in _listening(port)}
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(entry.readlink()) in inodes:
                pid = entry.parts[2]
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                return f" by {name} (process {pid})"
        except OSError:
            continue
    return ""


def _listening(port: int) -> Iterator[tuple[_Ip, str]]:
    """Yields the addresses of this machine with a listener on a port, each with its socket's inode."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:  # a kernel without IPv6
            continue
        for row in rows:
            columns = row.split()
            host, _, number = columns[1].rpartition(":")
            if columns[3] == "0A" and int(number, 16) == port:
                yield _ip(host), columns[9]


def _ip(host: str) -> _Ip:
    """Parses an address of /proc/net: groups of four bytes, each in the machine's byte order."""
    groups = [host[begin : begin + 8] for begin in range(0, len(host), 8)]
    address = ipaddress.ip_address(b"".join(int(group, 16).to_bytes(4, sys.byteorder) for group in groups))
    return getattr(address, "ipv4_mapped", None) or address


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""

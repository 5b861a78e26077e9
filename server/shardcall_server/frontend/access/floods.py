"""Flood protection: closes connections that send much data without an admitted call."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import structlog

# Four flooding connections left other clients 2 of 530 calls in 8 s, and 10 of 670 with a bare gRPC server. With the
# guard and a burst of 1 MiB, 310 to 355 remain.
_SCAN_S = 0.25
_MAX_LOAD = 0.05  # of one processor: a scan takes 3 µs for each exempt connection and 30 µs for each other one
_BURST_BYTES = 128 << 10  # a refused call has sent its headers and at most 64 KiB of its first message
_BYTES_PER_S = 1 << 10  # ten health checks
_PATIENCE = 4  # scans; gRPC's window grows to MiB while a busy server has yet to start the handler of a call
_NO_DESCRIPTOR_LEFT = (errno.EMFILE, errno.ENFILE)
_BYTES_RECEIVED = struct.Struct("=128xQ")  # the start of struct tcp_info, to tcpi_bytes_received (Linux 4.1)


class FloodGuard:
    """Closes TCP connections that send more than a limit before a call of theirs is admitted.

    A peer that opens streams and resets them at once (CVE-2023-44487) keeps gRPC's own threads busy, and few of the
    streams are ever seen from Python. So the guard asks the kernel how many bytes each connection has received, four
    times a second. A connection may receive 128 KiB at once and 1 KiB a second, until a call of it is admitted. One
    that exceeds this at four scans in sequence is closed. A health check, which needs no token, takes some 100 bytes.

    It watches only TCP connections to the server's ports, and only on Linux; elsewhere it closes nothing.

    Args:
        on_close: called with the peer of each closed connection, as gRPC names it.
        clock: a monotonic clock, in seconds.
        scan_s: the seconds from one scan to the next.
        patience: the number of scans in sequence that must find a connection above its limit.
    """

    def __init__(
        self,
        on_close: Callable[[str], object] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        scan_s: float = _SCAN_S,
        patience: int = _PATIENCE,
    ) -> None:
        self._scan_s = scan_s
        self._patience = patience
        self._on_close = on_close
        self._clock = clock
        self._ports: frozenset[int] = frozenset()
        self._admitted: set[str] = set()  # peers since the last scan
        self._exempt: set[int] = set()  # sockets, by inode
        self._limited: dict[int, _LimitedConnection] = {}  # the others
        self._closing = threading.Event()  # ends the thread
        self._thread = threading.Thread(target=self._watch, name="floods", daemon=True)

    def admit(self, connection: str) -> None:
        """Exempts a connection, named by its peer as gRPC names it, since a call of it was admitted."""
        self._admitted.add(connection)

    def watch(self, ports: Iterable[int]) -> None:
        """Starts watching the connections to these ports."""
        self._ports = frozenset(ports)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread, if it was started."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        pause_s = self._scan_s
        while not self._closing.wait(pause_s):
            began = time.thread_time()
            try:
                self.scan()
            except OSError as error:  # there is no /proc, or no descriptor is left
                structlog.get_logger().debug("connections could not be scanned", error=str(error))
            pause_s = max(self._scan_s, (time.thread_time() - began) / _MAX_LOAD)

    def scan(self) -> None:
        """Scans all connections once.

        Raises:
            OSError: they could not be scanned.
        """
        # Peers admitted later stay for the next scan, which may be the first that sees their connection.
        admitted = self._admitted.copy()
        present = set()
        for inode, descriptor in _sockets():
            present.add(inode)
            if inode not in self._exempt and not self._check(inode, descriptor):
                self._exempt.add(inode)
        self._exempt &= present
        self._limited = {inode: entry for inode, entry in self._limited.items() if inode in present - self._exempt}
        self._admitted -= admitted

    def _check(self, inode: int, descriptor: int) -> bool:
        """Checks a socket and closes it if it exceeds its limit; returns whether to check it again."""
        limited = self._limited.get(inode)
        try:
            if limited is None:
                with _copy(descriptor) as connection:
                    if (peer := self._peer(connection)) is None:
                        return False
                limited = self._limited[inode] = _LimitedConnection(peer, self._clock())
            allowed = limited.allows(_received_bytes(descriptor), self._clock(), self._patience)
            # After counting the bytes: a call that was admitted during this scan may have sent them.
            if limited.peer in self._admitted:
                return False
            if allowed:
                return True
            with _copy(descriptor) as connection:
                if os.fstat(connection.fileno()).st_ino == inode:
                    self._on_close(limited.peer)
                    _shut_down(connection)
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR_LEFT:
                raise
            return True  # it was closed meanwhile, or is being connected
        return False

    def _peer(self, connection: socket.socket) -> str | None:
        """Returns the peer of a connection to one of the ports, as gRPC names it; None for other sockets."""
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return None
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        if connection.getsockname()[1] not in self._ports:
            return None
        host, port, *rest = connection.getpeername()
        host = host.removeprefix("::ffff:")
        if ":" not in host:
            return f"ipv4:{host}:{port}"
        # Link-local addresses have a scope, which gRPC and Python write differently; they are not limited.
        return None if rest[1] else f"ipv6:%5B{host}%5D:{port}"


@dataclass
class _LimitedConnection:
    """A connection without an admitted call, limited by a token bucket.

    Attributes:
        peer: its peer, as gRPC names it.
        seen: the time of the last check.
        received: the bytes received until the last check.
        allowed: the bytes left in the bucket.
        scans: the number of scans in sequence that found the bucket overdrawn.
    """

    peer: str
    seen: float
    received: int = 0
    allowed: float = _BURST_BYTES
    scans: int = 0

    def allows(self, received: int, now: float, patience: int) -> bool:
        """Takes newly received bytes out of the bucket; returns False at the last scan that may find it overdrawn."""
        refilled = min(_BURST_BYTES, self.allowed + _BYTES_PER_S * (now - self.seen))
        self.allowed = refilled - (received - self.received)
        self.received, self.seen = received, now
        self.scans = 0 if self.allowed >= 0 else self.scans + 1
        return self.scans < patience


def _copy(descriptor: int) -> socket.socket:
    """Returns a socket with a duplicate of gRPC's descriptor, which gRPC cannot close."""
    return socket.socket(fileno=os.dup(descriptor))


def _received_bytes(descriptor: int) -> int:
    """Returns the bytes that a TCP connection has received; 0 where the kernel does not count them."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, descriptor)
    try:
        information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    finally:
        connection.detach()
    return _BYTES_RECEIVED.unpack(information)[0] if len(information) == _BYTES_RECEIVED.size else 0


def _shut_down(connection: socket.socket) -> None:
    """Shuts a connection down for both sides; gRPC reads the end of the stream and closes its descriptor.

    Received data, which may be many MiB, are discarded: gRPC would process all of them.
    """
    connection.shutdown(socket.SHUT_RDWR)
    while connection.recv(1 << 20, socket.MSG_DONTWAIT):
        pass


def _sockets() -> Iterator[tuple[int, int]]:
    """Yields the inode and descriptor of each socket of this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:  # closed meanwhile
            continue
        if stat.S_ISSOCK(status.st_mode):
            yield status.st_ino, int(name)

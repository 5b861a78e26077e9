"""The Unix socket at which a client exchanges a ticket for its segment.

gRPC carries no file descriptors. OpenSegment therefore returns a ticket and the path of this socket, which is in a
private directory: only processes of the server's user reach it, and the user of each connection is checked as well.
The connection is then the segment's lease: the kernel closes it when the client dies, whatever the cause.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.private_sockets import peer_of, usual_parents
from shardcall_server.frontend.files.private_directory import PrivateDirectory, remove_stale
from shardcall_server.frontend.memory.segments import MAX_SEGMENTS, ServerSegment

TICKET_BYTES = 32
GRANTED = b"\x01"
_MAX_SILENT = 32
_ACCEPT_PAUSE_S = 0.5


@dataclass(eq=False)
class _Offer:
    """A segment whose ticket has not been redeemed.

    Attributes:
        expires_at: the expiry of the ticket, on the monotonic clock.
    """

    segment: ServerSegment
    expires_at: float


@dataclass(eq=False)
class _Visitor:
    """A connection that has not sent a complete ticket.

    Attributes:
        expires_at: the moment on the monotonic clock at which it is closed.
        received: the part of the ticket that has arrived.
    """

    socket: socket.socket
    expires_at: float
    received: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class _Holder:
    """A connection that is the lease of a segment."""

    socket: socket.socket
    segment: ServerSegment


class SegmentBroker:
    """Serves the socket on a thread of its own; see `make_segment_broker`.

    It must be closed before the table of segments.

    Args:
        directory: the directory of the socket; removed by `close`.
        ticket_s: the time for which a ticket is valid, and in which a connection must send one.

    Attributes:
        socket_path: the path of the socket.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(self, directory: PrivateDirectory, ticket_s: float) -> None:
        self.socket_path = directory.socket_path
        self.ticket_s = ticket_s
        self._offers: dict[bytes, _Offer] = {}  # by the ticket's digest; the first expires first
        self._visitors: dict[int, _Visitor] = {}  # by descriptor; the first expires first
        self._holders: dict[int, _Holder] = {}
        self._lock = threading.Lock()  # guards the offers, which other threads add, and `_closing`
        self._closing = False
        self._accepts_again = 0.0
        with contextlib.ExitStack() as undo:
            self._listener = undo.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            )
            self._listener.bind(self.socket_path)
            os.chmod(self.socket_path, 0o600)
            self._listener.listen(MAX_SEGMENTS)
            self._wakes = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            undo.callback(os.close, self._wakes)
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._selector.register(self._wakes, selectors.EVENT_READ)
            self._selector.register(self._listener, selectors.EVENT_READ)
            self._thread = threading.Thread(target=self._serve, name="segments", daemon=True)
            self._thread.start()
            self._directory = directory
            self._undo = undo.pop_all()

    def offer(self, segment: ServerSegment) -> bytes:
        """Returns a ticket for a segment, whose lease then ends with the ticket or with the connection.

        Raises:
            CallError: the server is shutting down; the caller must release the lease.
        """
        ticket = secrets.token_bytes(TICKET_BYTES)
        with self._lock:
            if self._closing:
                raise CallError(
                    Reason.SERVER_DRAINING, "the server is shutting down and opens no more segments; use another"
                )
            self._offers[_digest(ticket)] = _Offer(segment, time.monotonic() + self.ticket_s)
            self._wake()
        return ticket

    def close(self) -> None:
        """Releases every lease and removes the socket."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._wake()
        self._thread.join()
        for visitor in list(self._visitors.values()):
            self._dismiss(visitor)
        for holder in list(self._holders.values()):
            self._release(holder)
        for offer in self._offers.values():
            offer.segment.release_lease()
        self._offers.clear()
        self._undo.close()
        self._directory.remove()

    def _wake(self) -> None:
        os.eventfd_write(self._wakes, 1)

    def _serve(self) -> None:
        while not self._closing:
            try:
                for key, _ in self._selector.select(self._timeout()):
                    self._handle(key.fd)
                self._expire()
            except Exception as error:  # noqa: BLE001  # the thread serves all clients and must not end
                structlog.get_logger().error("the segment broker failed unexpectedly", exc_info=error)

    def _handle(self, fd: int) -> None:
        if fd == self._wakes:
            os.eventfd_read(fd)
        elif fd == self._listener.fileno():
            self._accept()
        elif fd in self._visitors:
            self._read(self._visitors[fd])
        elif fd in self._holders:  # an earlier event of this iteration may have released it
            self._release(self._holders[fd])

    def _timeout(self) -> float | None:
        """Returns the seconds until something expires; None if nothing will."""
        first = (self._first_offer(), next(iter(self._visitors.values()), None))
        moments = [item.expires_at for item in first if item]
        if self._accepts_again:
            moments.append(self._accepts_again)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _first_offer(self) -> _Offer | None:
        with self._lock:
            return next(iter(self._offers.values()), None)

    def _expire(self) -> None:
        now = time.monotonic()
        while (offer := self._pop_expired(now)) is not None:
            offer.segment.release_lease()
        while (visitor := next(iter(self._visitors.values()), None)) is not None and visitor.expires_at <= now:
            self._dismiss(visitor)
        if self._accepts_again and self._accepts_again <= now:
            self._accepts_again = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _pop_expired(self, now: float) -> _Offer | None:
        with self._lock:
            digest, offer = next(iter(self._offers.items()), (b"", None))
            if offer is None or offer.expires_at > now:
                return None
            return self._offers.pop(digest)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors are left; the listener stays readable, so pause it
            structlog.get_logger().warning("a connection for a segment could not be accepted", error=error.strerror)
            self._selector.unregister(self._listener)
            self._accepts_again = time.monotonic() + _ACCEPT_PAUSE_S
            return
        if peer_of(accepted)[1] != os.geteuid():
            accepted.close()
            return
        if len(self._visitors) >= _MAX_SILENT:  # close the oldest; an honest client has sent its ticket by now
            self._dismiss(next(iter(self._visitors.values())))
        accepted.setblocking(False)
        self._visitors[accepted.fileno()] = _Visitor(accepted, time.monotonic() + self.ticket_s)
        self._selector.register(accepted, selectors.EVENT_READ)

    def _read(self, visitor: _Visitor) -> None:
        try:
            received = visitor.socket.recv(TICKET_BYTES - len(visitor.received))
        except BlockingIOError:
            return
        except OSError:
            received = b""
        visitor.received += received
        if not received:
            self._dismiss(visitor)
        elif len(visitor.received) == TICKET_BYTES:
            self._redeem(visitor)

    def _redeem(self, visitor: _Visitor) -> None:
        # The lookup uses digests, so that its duration reveals nothing about valid tickets.
        with self._lock:
            offer = self._offers.pop(_digest(visitor.received), None)
        if offer is None:
            self._dismiss(visitor)
            return
        connection, segment = visitor.socket, offer.segment
        del self._visitors[connection.fileno()]
        holder = self._holders[connection.fileno()] = _Holder(connection, segment)
        if offer.expires_at <= time.monotonic():
            self._release(holder)
            return
        try:
            socket.send_fds(connection, [GRANTED], [segment.fd])
        except OSError:  # the client has disconnected
            self._release(holder)

    def _dismiss(self, visitor: _Visitor) -> None:
        del self._visitors[visitor.socket.fileno()]
        self._close(visitor.socket)

    def _release(self, holder: _Holder) -> None:
        """Releases a lease whose client has disconnected, or has sent bytes after its ticket."""
        del self._holders[holder.socket.fileno()]
        self._close(holder.socket)
        holder.segment.release_lease()

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def make_segment_broker(parents: Iterable[str] | None = None, ticket_s: float = 5.0) -> SegmentBroker | None:
    """Starts a segment broker in a new private directory.

    Args:
        parents: candidates for the parent directory, best first; None for the usual ones.
        ticket_s: the time for which a ticket is valid.

    Returns:
        The broker; None if no directory is usable, which is logged. Segments are off then.
    """
    refusals = []
    for parent in usual_parents() if parents is None else parents:
        remove_stale(parent)
        try:
            directory = PrivateDirectory(parent)
            try:
                return SegmentBroker(directory, ticket_s)
            except BaseException:
                directory.remove()
                raise
        except OSError as error:
            refusals.append(f"{parent}: {error.strerror or error}")
    structlog.get_logger().warning("memory cannot be shared with clients: no directory for a socket", tried=refusals)
    return None


def _digest(ticket: bytes | bytearray) -> bytes:
    return hashlib.sha256(ticket).digest()

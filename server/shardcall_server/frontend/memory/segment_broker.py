"""The Unix socket at which a client turns a ticket into its segment.

gRPC carries no descriptors. So the answer to OpenSegment is a ticket and the address of this socket, which lies in
a directory of the server's own: only processes of its user reach it, and each connection is asked whose it is all
the same. The connection is then the segment's lease: the kernel ends it when the client dies, however it dies.
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

from shardcall._src.wire.private_sockets import peer_of, usual_parents
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.files.private_directory import PrivateDirectory, remove_stale
from shardcall_server.frontend.memory.segments import MAX_SEGMENTS, ServerSegment

TICKET_BYTES = 32
GRANTED = b"\x01"
_MAX_SILENT = 32
_ACCEPT_PAUSE_S = 0.5


@dataclass(eq=False)
class _Offer:
    """A segment that waits for whoever brings its ticket.

    Attributes:
        segment: which.
        ends: when the ticket is worth nothing more, on the monotonic clock.
    """

    segment: ServerSegment
    ends: float


@dataclass(eq=False)
class _Visitor:
    """A connection that has brought no ticket yet.

    Attributes:
        socket: the connection.
        ends: until when it may.
        brought: what it has sent of a ticket.
    """

    socket: socket.socket
    ends: float
    brought: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class _Holder:
    """A connection that is the lease of a segment."""

    socket: socket.socket
    segment: ServerSegment


class SegmentBroker:
    """Serves the socket with one thread of its own; `make_companion` makes one.

    Close it before the registry of the segments.

    Args:
        directory: where the socket goes; removed at the end.
        ticket_s: how long a ticket is good for, and how long a connection may take to bring one.

    Attributes:
        socket_path: the socket's.
        ticket_s: as given.

    Raises:
        OSError: there can be no socket there.
    """

    def __init__(self, directory: PrivateDirectory, ticket_s: float) -> None:
        self.socket_path = directory.socket_path
        self.ticket_s = ticket_s
        self._offers: dict[bytes, _Offer] = {}  # by the ticket's digest; all last equally long: the first ends first
        self._visitors: dict[int, _Visitor] = {}  # by descriptor; likewise
        self._holders: dict[int, _Holder] = {}
        self._lock = threading.Lock()  # of the offers, which other threads add to, and of the end
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
        """Makes the ticket of a segment, and takes its lease over: it ends with the ticket or the connection.

        Raises:
            CallError: the server is shutting down; the lease is still the caller's.
        """
        ticket = secrets.token_bytes(TICKET_BYTES)
        with self._lock:
            if self._closing:
                raise CallError(
                    Reason.SERVER_DRAINING, "the server is shutting down and makes no more segments; use another"
                )
            self._offers[_digest(ticket)] = _Offer(segment, time.monotonic() + self.ticket_s)
            self._wake()
        return ticket

    def close(self) -> None:
        """Ends every lease and removes the socket."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._wake()
        self._thread.join()
        for visitor in list(self._visitors.values()):
            self._dismiss(visitor)
        for holder in list(self._holders.values()):
            self._end(holder)
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
            except Exception as error:  # noqa: BLE001  # the thread serves everybody and must not end
                structlog.get_logger().error("serving segments failed unexpectedly", exc_info=error)

    def _handle(self, fd: int) -> None:
        if fd == self._wakes:
            os.eventfd_read(fd)
        elif fd == self._listener.fileno():
            self._accept()
        elif fd in self._visitors:
            self._read(self._visitors[fd])
        elif fd in self._holders:  # not one that an event before it in this round has ended
            self._end(self._holders[fd])

    def _timeout(self) -> float | None:
        """Seconds until something expires; None if nothing will."""
        ends = [waiting.ends for waiting in (self._first_offer(), next(iter(self._visitors.values()), None)) if waiting]
        if self._accepts_again:
            ends.append(self._accepts_again)
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _first_offer(self) -> _Offer | None:
        with self._lock:
            return next(iter(self._offers.values()), None)

    def _expire(self) -> None:
        now = time.monotonic()
        while (offer := self._take_expired(now)) is not None:
            offer.segment.release_lease()
        while (visitor := next(iter(self._visitors.values()), None)) is not None and visitor.ends <= now:
            self._dismiss(visitor)
        if self._accepts_again and self._accepts_again <= now:
            self._accepts_again = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _take_expired(self, now: float) -> _Offer | None:
        with self._lock:
            digest, offer = next(iter(self._offers.items()), (b"", None))
            if offer is None or offer.ends > now:
                return None
            return self._offers.pop(digest)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors: the listener stays readable, and would be asked without end
            structlog.get_logger().warning("no connection for a segment can be accepted", error=error.strerror)
            self._selector.unregister(self._listener)
            self._accepts_again = time.monotonic() + _ACCEPT_PAUSE_S
            return
        if peer_of(accepted)[1] != os.geteuid():
            accepted.close()
            return
        if len(self._visitors) >= _MAX_SILENT:  # the oldest goes: who means it has sent its ticket by now
            self._dismiss(next(iter(self._visitors.values())))
        accepted.setblocking(False)
        self._visitors[accepted.fileno()] = _Visitor(accepted, time.monotonic() + self.ticket_s)
        self._selector.register(accepted, selectors.EVENT_READ)

    def _read(self, visitor: _Visitor) -> None:
        try:
            received = visitor.socket.recv(TICKET_BYTES - len(visitor.brought))
        except BlockingIOError:
            return
        except OSError:
            received = b""
        visitor.brought += received
        if not received:
            self._dismiss(visitor)
        elif len(visitor.brought) == TICKET_BYTES:
            self._redeem(visitor)

    def _redeem(self, visitor: _Visitor) -> None:
        # Digests are looked up, so how long that takes tells nothing of the tickets that there are.
        with self._lock:
            offer = self._offers.pop(_digest(visitor.brought), None)
        if offer is None:
            self._dismiss(visitor)
            return
        connection, segment = visitor.socket, offer.segment
        del self._visitors[connection.fileno()]
        holder = self._holders[connection.fileno()] = _Holder(connection, segment)
        if offer.ends <= time.monotonic():
            self._end(holder)
            return
        try:
            socket.send_fds(connection, [GRANTED], [segment.fd])
        except OSError:  # it is gone already
            self._end(holder)

    def _dismiss(self, visitor: _Visitor) -> None:
        del self._visitors[visitor.socket.fileno()]
        self._close(visitor.socket)

    def _end(self, holder: _Holder) -> None:
        """Ends a lease, whether its client has gone or has sent what it should not."""
        del self._holders[holder.socket.fileno()]
        self._close(holder.socket)
        holder.segment.release_lease()

    def _close(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()


def make_segment_broker(parents: Iterable[str] | None = None, ticket_s: float = 5.0) -> SegmentBroker | None:
    """Starts a segment broker in a fresh directory that only this user may enter.

    Args:
        parents: where that may be, the best first; None for the usual ones.
        ticket_s: how long a ticket is good for.

    Returns:
        The broker; None where none of them will do, told once in the log. Segments are off then.
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
    structlog.get_logger().warning("memory cannot be shared with clients: no place for a socket", tried=refusals)
    return None


def _digest(ticket: bytes | bytearray) -> bytes:
    return hashlib.sha256(ticket).digest()

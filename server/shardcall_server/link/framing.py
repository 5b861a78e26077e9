"""Framing of messages on a stream socket, each with an optional file descriptor.

A frame is a header (length of the body, presence of a descriptor) and the body, one serialized protobuf message.
Descriptors travel as SCM_RIGHTS with the first byte of their frame, so they arrive in the order of their frames.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<I?")
_MAX_BODY_BYTES = 1 << 28
_RECEIVE_BYTES = 1 << 18


class LinkClosedError(ConnectionError):
    """The peer is gone: its process exited, or it closed the link."""


class LinkFullError(ConnectionError):
    """The peer does not read and the backlog is full."""


@dataclass
class _Unsent:
    data: memoryview
    fd: int | None


class Link:
    """One end of the link.

    `send` never blocks: data that the socket does not accept at once is sent later by a thread, in order. So a
    suspended peer blocks no sender, and callers bound their waits for an answer themselves.

    Args:
        sock: a connected stream socket, owned by the link.
        backlog_bytes: the limit of unsent bytes for a peer that does not read.
    """

    def __init__(self, sock: socket.socket, backlog_bytes: int = 64 << 20) -> None:
        self._socket = sock
        self._backlog_limit_bytes = backlog_bytes
        self._backlog: deque[_Unsent] = deque()
        self._backlog_bytes = 0
        self._lock = threading.Lock()
        self._closed = False

    def has_capacity(self, nbytes: int) -> bool:
        """Returns whether the backlog of a peer that does not read has this many bytes left."""
        return self._backlog_bytes + nbytes <= self._backlog_limit_bytes

    def send(self, body: bytes, fd: int | None = None) -> None:
        """Sends one message, after all those sent before.

        Args:
            body: the serialized message.
            fd: a descriptor for the peer, which gets a copy.

        Raises:
            LinkClosedError: the peer is gone.
            LinkFullError: the backlog is full; the message was not sent.
        """
        unsent = _Unsent(memoryview(_HEADER.pack(len(body), fd is not None) + body), fd)
        with self._lock:
            if self._closed:
                raise LinkClosedError("the link is closed")
            if not self._backlog:
                self._send_some(unsent)
                if not unsent.data:
                    return
            if self._backlog_bytes + len(unsent.data) > self._backlog_limit_bytes:
                if len(unsent.data) < len(body) + _HEADER.size:  # a part was sent, so the stream is broken
                    self._shut()
                    raise LinkClosedError("the link was closed in the middle of a message")
                raise LinkFullError("the mesh worker does not read its link")
            if unsent.fd is not None:
                unsent.fd = os.dup(unsent.fd)
            self._backlog.append(unsent)
            self._backlog_bytes += len(unsent.data)
            if len(self._backlog) == 1:
                threading.Thread(target=self._flush, name="link-flush", daemon=True).start()

    def _send_some(self, unsent: _Unsent) -> None:
        ancillary = []
        if unsent.fd is not None:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [unsent.fd]))]
        try:
            sent = self._socket.sendmsg([unsent.data], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError as error:
            self._shut()
            raise LinkClosedError("the mesh worker closed its link") from error
        unsent.data = unsent.data[sent:]
        unsent.fd = None

    def _flush(self) -> None:
        writable = select.poll()
        writable.register(self._socket, select.POLLOUT)
        while True:
            writable.poll()
            with self._lock:
                if self._closed:
                    return
                first = self._backlog[0]
                before, fd = len(first.data), first.fd
                try:
                    self._send_some(first)
                except LinkClosedError:
                    return
                if fd is not None and first.fd is None:
                    os.close(fd)
                self._backlog_bytes -= before - len(first.data)
                if not first.data:
                    self._backlog.popleft()
                if not self._backlog:
                    return

    def frames(self) -> Iterator[tuple[bytes, int | None]]:
        """Yields (body, descriptor) as they come; ends when the peer is gone.

        The receiver owns the descriptors. For one thread only.
        """
        buffer = bytearray()
        fds: deque[int] = deque()
        space = socket.CMSG_SPACE(16 * struct.calcsize("i"))
        try:
            while True:
                try:
                    data, ancillary, _, _ = self._socket.recvmsg(_RECEIVE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
                except OSError:
                    return
                for level, kind, payload in ancillary:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        fds.extend(array.array("i", payload[: len(payload) // 4 * 4]))
                if not data:
                    return
                buffer += data
                yield from _complete_frames(buffer, fds)
        finally:
            for fd in fds:
                os.close(fd)

    @property
    def readable(self) -> bool:
        """True if data or the end of the stream has come that `frames` has not read yet."""
        with self._lock:
            if self._closed:
                return False
            readable = select.poll()
            readable.register(self._socket, select.POLLIN)
            return bool(readable.poll(0))

    def close(self) -> None:
        """Closes the link for both sides and discards the backlog."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        if self._closed:
            return
        self._closed = True
        for unsent in self._backlog:
            if unsent.fd is not None:
                os.close(unsent.fd)
        self._backlog.clear()
        # shutdown wakes the thread in `frames`; close alone would leave it waiting.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _complete_frames(buffer: bytearray, fds: deque[int]) -> Iterator[tuple[bytes, int | None]]:
    while len(buffer) >= _HEADER.size:
        length, has_fd = _HEADER.unpack_from(buffer)
        if length > _MAX_BODY_BYTES:
            raise LinkClosedError(f"a frame of {length} bytes came over the link")
        end = _HEADER.size + length
        if len(buffer) < end:
            return
        body = bytes(memoryview(buffer)[_HEADER.size : end])
        del buffer[:end]
        yield body, fds.popleft() if has_fd else None

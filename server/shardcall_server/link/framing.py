"""Framing of messages on a stream socket, each with an optional file descriptor.

A frame is a header (length of the body, presence of a descriptor) and the body, one serialized protobuf message.
Descriptors travel as SCM_RIGHTS with the first byte of their frame, so they arrive in the order of their frames.
Messages that follow each other at once can share one write, and a reader gets all the messages of one read together.
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

from shardcall_core.locks import check_held, lock

_HEADER = struct.Struct("<I?")
_MAX_BODY_BYTES = 1 << 28
_RECEIVE_BYTES = 1 << 18
_MAX_GATHERED_BYTES = 64 << 10
_SEND_FLAGS = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

Frame = tuple[bytes, int | None]
"""A message and its descriptor; None for none."""


class LinkClosedError(ConnectionError):
    """The peer is gone: its process exited, or it closed the link."""


class LinkFullError(ConnectionError):
    """The peer does not read and the backlog is full."""


@dataclass
class _BacklogEntry:
    """Bytes that the socket has not accepted, and the descriptor that is sent with the first of them."""

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
        self._backlog: deque[_BacklogEntry] = deque()
        self._backlog_bytes = 0
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        # Guards the socket's writing end and what waits for it. No write under it blocks.
        self._lock = lock("the lock of a link")
        self._closed = False

    def has_capacity(self, nbytes: int) -> bool:
        """Returns whether the backlog of a peer that does not read has this many bytes left."""
        return self._backlog_bytes + self._gathered_bytes + nbytes <= self._backlog_limit_bytes

    def send(self, body: bytes, fd: int | None = None, *, more: bool = False) -> None:
        """Sends one message, after all those sent before.

        Args:
            body: the serialized message.
            fd: a descriptor for the peer, which gets a copy.
            more: whether the message may wait for the next one or `flush`, to share a write with it. Messages with a
                descriptor do not wait.

        Raises:
            LinkClosedError: the peer is gone.
            LinkFullError: the backlog is full; the message was not sent.
        """
        header = _HEADER.pack(len(body), fd is not None)
        with self._lock:
            if self._closed:
                raise LinkClosedError("the link is closed")
            if self._backlog_bytes + self._gathered_bytes + len(body) > self._backlog_limit_bytes:
                raise LinkFullError("the mesh worker does not read its link")
            if fd is not None:
                self._write()
            self._gathered += (header, body)
            self._gathered_bytes += len(header) + len(body)
            if not more or fd is not None or self._gathered_bytes >= _MAX_GATHERED_BYTES:
                self._write(fd)

    def flush(self) -> None:
        """Sends the messages that wait for others; does nothing if the peer is gone."""
        if not self._gathered:
            return
        try:
            with self._lock:
                self._write()
        except LinkClosedError:
            return

    def _write(self, fd: int | None = None) -> None:
        """Sends the messages that wait; what the socket does not accept becomes a part of the backlog."""
        check_held(self._lock)
        if not self._gathered:
            return
        unsent = _BacklogEntry(memoryview(b"".join(self._gathered)), fd)
        self._gathered.clear()
        self._gathered_bytes = 0
        if not self._backlog:
            self._send_some(unsent)
            if not unsent.data:
                return
        if unsent.fd is not None:
            unsent.fd = os.dup(unsent.fd)
        self._backlog.append(unsent)
        self._backlog_bytes += len(unsent.data)
        if len(self._backlog) == 1:
            threading.Thread(target=self._send_backlog, name="link-flush", daemon=True).start()

    def _send_some(self, unsent: _BacklogEntry) -> None:
        try:
            if unsent.fd is None:
                sent = self._socket.send(unsent.data, _SEND_FLAGS)
            else:
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [unsent.fd]))
                sent = self._socket.sendmsg([unsent.data], [rights], _SEND_FLAGS)
        except BlockingIOError:
            return
        except OSError as error:
            self._shut()
            raise LinkClosedError("the mesh worker closed its link") from error
        unsent.data = unsent.data[sent:]
        unsent.fd = None

    def _send_backlog(self) -> None:
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

    def frames(self) -> Iterator[Frame]:
        """Yields messages as they come; see `batches`."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Frame]]:
        """Yields the messages that each read completes; ends when the peer is gone.

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
                for level, message_type, payload in ancillary:
                    if (level, message_type) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                        fds.extend(array.array("i", payload[: len(payload) // 4 * 4]))
                if not data:
                    return
                buffer += data
                if batch := _complete_frames(buffer, fds):
                    yield batch
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
        check_held(self._lock)
        if self._closed:
            return
        self._closed = True
        for unsent in self._backlog:
            if unsent.fd is not None:
                os.close(unsent.fd)
        self._backlog.clear()
        self._gathered.clear()
        # shutdown wakes the thread in `frames`; close alone would leave it waiting.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _complete_frames(buffer: bytearray, fds: deque[int]) -> list[Frame]:
    """Removes the complete frames from the beginning of a buffer and returns them."""
    batch: list[Frame] = []
    begin = 0
    with memoryview(buffer) as view:
        while len(view) >= begin + _HEADER.size:
            length, has_fd = _HEADER.unpack_from(view, begin)
            if length > _MAX_BODY_BYTES:
                raise LinkClosedError(f"a frame of {length} bytes came over the link")
            end = begin + _HEADER.size + length
            if len(view) < end:
                break
            batch.append((bytes(view[begin + _HEADER.size : end]), fds.popleft() if has_fd else None))
            begin = end
    del buffer[:begin]
    return batch

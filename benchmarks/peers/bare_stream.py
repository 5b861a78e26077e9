"""Calls over one long-lived stream without further work: the floor of a call stream.

A frame is a sequence of items, each a header with its size and number, and its bytes. Frames also cross the link of
`grpc_worker`.
"""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import grpc

PATH = "/echo.Echo/Calls"
_HEADER = struct.Struct("<IQ")
_FRAME_ITEMS = 64


def pack(number: int, data: bytes) -> bytes:
    """Returns an item."""
    return _HEADER.pack(len(data), number) + data


def unpack(frame: bytes | bytearray) -> tuple[list[tuple[int, bytes]], int]:
    """Returns the numbers and bytes of the complete items, and the offset of the first incomplete one."""
    items, at = [], 0
    while at + _HEADER.size <= len(frame):
        size, number = _HEADER.unpack_from(frame, at)
        end = at + _HEADER.size + size
        if end > len(frame):
            break
        items.append((number, bytes(frame[at + _HEADER.size : end])))
        at = end
    return items, at


def waiting(queue: SimpleQueue[bytes | None]) -> Iterator[bytes]:
    """Yields frames of all waiting items, up to an item None."""
    items: list[bytes | None] = []
    while None not in items:
        items = [queue.get()]
        while not queue.empty() and len(items) < _FRAME_ITEMS:
            items.append(queue.get())
        yield b"".join(filter(None, items))


class BareStream:
    """Makes calls over one stream, for any number of threads.

    Args:
        channel: a channel to the server.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        self._numbers = itertools.count()
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._answers: dict[int, tuple[threading.Lock, list[bytes]]] = {}
        method: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(PATH)
        threading.Thread(target=self._read, args=[method(waiting(self._outgoing))], daemon=True).start()

    def call(self, data: bytes) -> bytes:
        """Sends the bytes and returns the answer."""
        number, answered, answer = next(self._numbers), threading.Lock(), list[bytes]()
        answered.acquire()
        self._answers[number] = answered, answer
        self._outgoing.put(pack(number, data))
        answered.acquire()
        return answer[0]

    def _read(self, frames: Iterator[bytes]) -> None:
        for frame in frames:
            for number, data in unpack(frame)[0]:
                answered, answer = self._answers.pop(number)
                answer.append(data)
                answered.release()

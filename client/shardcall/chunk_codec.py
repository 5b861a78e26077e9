"""Chunks as the bytes of their messages, without protobuf's copies.

Protobuf copies a chunk's data three times on the way out and twice on the way in. These two functions copy
once and not at all; what they write and read is exactly the wire form of the messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardcall.v1 import array_pb2, kernel_service_pb2

Bytes = npt.NDArray[np.uint8]

_LENGTH_DELIMITED = 2
_PLACE_TAGS = (array_pb2.TensorChunk.INDEX_FIELD_NUMBER << 3, array_pb2.TensorChunk.OFFSET_FIELD_NUMBER << 3)
_DATA_TAG = array_pb2.TensorChunk.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_REQUEST_TAG = kernel_service_pb2.ExecuteStreamRequest.CHUNK_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_RESPONSE_TAG = kernel_service_pb2.ExecuteStreamResponse.CHUNK_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


@dataclass(frozen=True)
class Chunk:
    """A piece of a result; ``data`` lies in the message that it came with."""

    index: int
    offset: int
    data: Bytes


def encode_chunk(index: int, offset: int, data: Bytes) -> bytes:
    """Returns the bytes of an ``ExecuteStreamRequest`` that holds a chunk; ``data`` is not empty."""
    place = array_pb2.TensorChunk(index=index, offset=offset).SerializeToString()
    inner = b"".join((place, bytes((_DATA_TAG,)), _varint(data.size)))
    outer = bytes((_REQUEST_TAG,)) + _varint(len(inner) + data.size)
    return b"".join((outer, inner, data.data))


def decode_answer(message: bytes) -> kernel_service_pb2.ExecuteStreamResponse | Chunk:
    """Returns what the bytes of an ``ExecuteStreamResponse`` hold.

    A chunk in the usual order of fields is read here, whatever else by protobuf.
    """
    if (chunk := _chunk(message)) is not None:
        return chunk
    response = kernel_service_pb2.ExecuteStreamResponse.FromString(message)
    if response.WhichOneof("message") != "chunk":
        return response
    return Chunk(response.chunk.index, response.chunk.offset, np.frombuffer(response.chunk.data, np.uint8))


def _chunk(message: bytes) -> Chunk | None:
    """The chunk, if the message is one whose last field is the data."""
    head = message[:64]  # more than tags, lengths, index and offset take together
    if not head or head[0] != _RESPONSE_TAG:
        return None
    try:
        length, at = _read_varint(head, 1)
        if at + length != len(message):
            return None
        start = at
        while head[at] in _PLACE_TAGS:
            _, at = _read_varint(head, at + 1)
        if head[at] != _DATA_TAG:
            return None
        size, data_at = _read_varint(head, at + 1)
    except IndexError:
        return None
    if data_at + size != len(message):
        return None
    place = array_pb2.TensorChunk.FromString(head[start:at])
    return Chunk(place.index, place.offset, np.frombuffer(message, np.uint8, size, data_at))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(buffer: bytes, at: int) -> tuple[int, int]:
    """The number that begins at ``at``, and where it ends."""
    number = shift = 0
    while True:
        byte = buffer[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte <= 0x7F:
            return number, at

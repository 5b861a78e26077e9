"""Encodes and decodes chunks without protobuf's copies, for client and server.

Protobuf copies a chunk's data three times in encoding and twice in decoding; these functions copy once and not at all.
They write and read exactly protobuf's encoding of the messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from shardcall.v1 import array_pb2, array_service_pb2, kernel_service_pb2

Bytes: TypeAlias = npt.NDArray[np.uint8]

CarrierClass: TypeAlias = (
    type[kernel_service_pb2.ExecuteStreamRequest]
    | type[kernel_service_pb2.ExecuteStreamResponse]
    | type[array_service_pb2.PutArrayRequest]
    | type[array_service_pb2.GetArrayResponse]
)
"""A class of messages that may contain a chunk."""

_Carrier = TypeVar(
    "_Carrier",
    kernel_service_pb2.ExecuteStreamRequest,
    kernel_service_pb2.ExecuteStreamResponse,
    array_service_pb2.PutArrayRequest,
    array_service_pb2.GetArrayResponse,
)

_LENGTH_DELIMITED = 2
_POSITION_TAGS = (array_pb2.TensorChunk.INDEX_FIELD_NUMBER << 3, array_pb2.TensorChunk.OFFSET_FIELD_NUMBER << 3)
_DATA_TAG = array_pb2.TensorChunk.DATA_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
_LONGEST_LENGTH = 5  # bytes of the varint, protobuf's limit


@dataclass(frozen=True)
class Chunk:
    """A part of an array; ``data`` refers to the message that contained it."""

    index: int
    offset: int
    data: Bytes


CallMessage: TypeAlias = kernel_service_pb2.ExecuteStreamResponse | Chunk
"""A message of the answer to a call."""

ArrayMessage: TypeAlias = array_service_pb2.GetArrayResponse | Chunk
"""A message of the answer with an array."""


def encode_chunk(message_class: CarrierClass, index: int, offset: int, data: Bytes) -> bytes:
    """Returns a serialized message with a chunk.

    Args:
        index: the index of the array.
        offset: the offset of the chunk in the array, in bytes.
        data: the bytes, contiguous.
    """
    inner = array_pb2.TensorChunk(index=index, offset=offset).SerializeToString()
    if data.size:
        inner = b"".join((inner, bytes((_DATA_TAG,)), _varint(data.size)))
    outer = bytes((_chunk_tag(message_class),)) + _varint(len(inner) + data.size)
    return b"".join((outer, inner, data.data))


def decode(message_class: type[_Carrier], message: bytes) -> _Carrier | Chunk:
    """Returns the chunk of a serialized message, or the message if it has none.

    A chunk with its fields in the usual order is read here, other messages by protobuf.

    Raises:
        google.protobuf.message.DecodeError: if the bytes are not such a message.
    """
    if (chunk := _chunk(message, _chunk_tag(message_class))) is not None:
        return chunk
    parsed = message_class.FromString(message)
    if parsed.WhichOneof("message") != "chunk":
        return parsed
    return Chunk(parsed.chunk.index, parsed.chunk.offset, np.frombuffer(parsed.chunk.data, np.uint8))


def _chunk_tag(message_class: CarrierClass) -> int:
    return message_class.CHUNK_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


def _chunk(message: bytes, tag: int) -> Chunk | None:
    """Returns the chunk of a message whose last field is the data; None for other messages."""
    head = message[:64]  # more than tags, lengths, index and offset together
    if not head or head[0] != tag:
        return None
    try:
        length, at = _read_varint(head, 1)
        if at > 1 + _LONGEST_LENGTH or at + length != len(message):
            return None
        start = at
        while head[at] in _POSITION_TAGS:
            _, at = _read_varint(head, at + 1)
        if head[at] != _DATA_TAG:
            return None
        size, data_at = _read_varint(head, at + 1)
    except IndexError:
        return None
    if data_at > at + 1 + _LONGEST_LENGTH or data_at + size != len(message):
        return None
    position = array_pb2.TensorChunk.FromString(head[start:at])
    return Chunk(position.index, position.offset, np.frombuffer(message, np.uint8, size, data_at))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(buffer: bytes, at: int) -> tuple[int, int]:
    """Returns the number at an offset, and the offset behind it."""
    number = shift = 0
    while True:
        byte = buffer[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte <= 0x7F:
            return number, at

"""Encodes operands in messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from google.protobuf.message import Message

from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.display.meters import SILENT, Meter
from shardcall.v1 import kernel_service_pb2
from shardcall_core.types import arrays
from shardcall_core.types.arrays import NDArray
from shardcall_core.wire.chunk_codec import CarrierClass, encode_chunk

Value: TypeAlias = NDArray | ArrayVersion | None
"""An operand with its values, wherever they are; None for one left out."""

Regions: TypeAlias = Mapping[int, kernel_service_pb2.SegmentRegion]
"""The regions of operands in segments, by index."""

RIDES_ALONG_BYTES = 64 * 2**10
"""The largest operand to be sent in the header, where a message of its own would cost more than its bytes."""

_NOWHERE: Regions = MappingProxyType({})


@dataclass(frozen=True)
class PackedOperands:
    """Operands as messages.

    Attributes:
        messages: a message for each operand.
        streamed: the operands to be sent as chunks, with their indices; row-major and little-endian.
    """

    messages: list[kernel_service_pb2.Operand]
    streamed: list[tuple[int, NDArray]]


def pack(
    operands: Sequence[Value],
    *,
    inline_bytes: int,
    longest_inline: int = RIDES_ALONG_BYTES,
    regions: Regions = _NOWHERE,
) -> PackedOperands:
    """Returns operands as messages: in a segment, on the mesh, inline up to a limit, else streamed.

    Args:
        operands: arrays of any memory layout.
        inline_bytes: the most bytes of all inline operands.
        longest_inline: the most bytes of one inline operand.
        regions: the operands that are in a segment.
    """
    packed = PackedOperands([], [])
    for index, operand in enumerate(operands):
        message = _described(operand)
        if isinstance(operand, ArrayVersion):
            message.resident.handle = operand.handle
        elif operand is not None and index in regions:
            message.segment.CopyFrom(regions[index])
        elif operand is not None and operand.nbytes <= min(inline_bytes, longest_inline):
            message.inline.data = arrays.row_major(operand).tobytes()
            inline_bytes -= operand.nbytes
        elif operand is not None:
            message.streamed.SetInParent()
            packed.streamed.append((index, arrays.row_major(operand)))
        packed.messages.append(message)
    return packed


def stream_requests(
    message_class: CarrierClass,
    header: Message,
    streamed: Sequence[tuple[int, NDArray]],
    chunk_bytes: int,
    meter: Meter = SILENT,
) -> Iterator[bytes]:
    """Yields the header, then the chunks of streamed operands, as serialized messages.

    Args:
        header: the header, sent in the first message.
        streamed: the operands with their indices.
        chunk_bytes: the most bytes of one chunk.
        meter: counts the bytes of chunks.
    """
    meter.upload(sum(operand.nbytes for _, operand in streamed))
    first = message_class()
    first.header.CopyFrom(header)  # type: ignore[arg-type] # the caller's pair is of one RPC
    yield first.SerializeToString()
    for index, operand in streamed:
        view = arrays.as_bytes_view(operand)
        for offset in range(0, view.size, chunk_bytes):
            piece = view[offset : offset + chunk_bytes]
            meter.add(piece.size)
            yield encode_chunk(message_class, index, offset, piece)


def _described(operand: Value) -> kernel_service_pb2.Operand:
    if operand is None:
        return kernel_service_pb2.Operand()
    return kernel_service_pb2.Operand(type=arrays.to_proto(operand))

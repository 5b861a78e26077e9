"""Reads operands from messages and streams into the call's buffers, and checks them against their types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from google.protobuf.message import Message

from shardcall.v1 import array_pb2, kernel_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.wire.chunk_codec import Chunk
from shardcall_server.frontend.memory.call_buffers import CallBuffers, OperandSource
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.unknown_fields import refuse_unknown_fields
from shardcall_server.link.wire import check_operand_count, decode_array_type, decode_operand_types

_NO_BYTES = np.empty(0, np.uint8)
_ALLOWED_BYTES = {
    np.dtype(np.bool_): frozenset({0, 1}),
    np.dtype(ml_dtypes.uint4): frozenset(range(16)),
    np.dtype(ml_dtypes.int4): frozenset(range(16)),
}


def check_operands(
    operands: Sequence[kernel_service_pb2.Operand],
    array_table: ResidentArrayTable,
    owner: str,
    *,
    may_stream: bool,
    inline: Sequence[bytes | None] = (),
) -> tuple[OperandSource, ...]:
    """Returns the sources of the operands; checks inline bytes now, streamed ones when they come.

    Args:
        operands: the operands of the request.
        owner: the client, which may name only its own resident arrays.
        may_stream: whether chunks can follow.
        inline: the bytes of the operands that are in the request; read from it if empty.

    Raises:
        CallError: the description of an operand is invalid or does not match its data.
    """
    check_operand_count(len(operands))
    return tuple(
        check_operand(
            item, f"operand {i}", array_table, owner, may_stream=may_stream, inline=inline[i] if inline else None
        )
        for i, item in enumerate(operands)
    )


def check_types(
    types: Sequence[array_pb2.ArrayType], handles: Sequence[bytes], array_table: ResidentArrayTable, owner: str
) -> tuple[OperandSource, ...]:
    """Returns the sources of the operands of a call that is planned without values.

    Args:
        types: the types of the operands.
        handles: the handles of resident arrays, at the indices of their operands; empty for the others.
        owner: the client, which may name only its own resident arrays.

    Raises:
        CallError: the description of an operand is invalid.
    """
    decoded = decode_operand_types(types)
    if len(handles) > len(decoded):
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{len(handles)} handles came for {len(decoded)} operands; give at most one for each",
            field="handles",
        )
    sources = [OperandSource(operand_type) for operand_type in decoded]
    for i, handle in enumerate(handles):
        if handle:
            resident = kernel_service_pb2.ResidentArray(handle=handle)
            operand = kernel_service_pb2.Operand(type=types[i] if decoded[i] else None, resident=resident)
            sources[i] = _resident(operand, f"operand {i}", array_table, owner)
    return tuple(sources)


def check_operand(
    operand: kernel_service_pb2.Operand,
    field: str,
    array_table: ResidentArrayTable,
    owner: str,
    *,
    may_stream: bool,
    inline: bytes | None = None,
) -> OperandSource:
    """Returns the source of one operand; see `check_operands`."""
    source = operand.WhichOneof("source")
    if source == "resident":
        return _resident(operand, field, array_table, owner)
    if source is None:
        refuse_unknown_fields(operand)
    if not operand.HasField("type"):
        if source is None:
            return OperandSource(None)
        raise CallError(Reason.MALFORMED_REQUEST, f"{field} has data and no type; set its type", field=field)
    array = decode_array_type(operand.type, field)
    if source is None:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field} has a type and no data; set inline, or streamed and send chunks",
            field=field,
        )
    if source == "segment":
        if array.dtype in _ALLOWED_BYTES:
            raise CallError(
                Reason.INVALID_OPERAND,
                f"{field} of type {array.dtype.name} is in a segment, where its bytes could change after they were "
                "checked; send it inline or as a stream",
                field=field,
            )
        return OperandSource(array, segment=operand.segment)
    if source == "streamed" and not may_stream:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field} is streamed in a unary call; send it inline, or use ExecuteStream",
            field=field,
        )
    if source == "inline":
        check_inline(array, operand.inline.data if inline is None else inline, field)
    return OperandSource(array)


def _resident(
    operand: kernel_service_pb2.Operand, field: str, array_table: ResidentArrayTable, owner: str
) -> OperandSource:
    resident = array_table.find(operand.resident.handle, owner, field)
    if operand.HasField("type") and decode_array_type(operand.type, field) != resident.type:
        raise CallError(
            Reason.INVALID_OPERAND,
            f"{field} is declared as {shorten(str(decode_array_type(operand.type, field)))}, and the array on the mesh "
            f"is {shorten(str(resident.type))}; omit the type, or correct it",
            field=field,
        )
    return OperandSource(resident.type, resident=resident)


def check_inline(array: ArrayType, data: bytes, field: str) -> None:
    """Raises CallError unless the number of bytes and their values fit the type."""
    if len(data) != array.nbytes:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"{field} is {shorten(str(array))}, which is {array.nbytes} bytes, and {len(data)} came; "
            "send row-major bytes without padding",
            field=field,
            metadata={"expected": str(array.nbytes), "given": str(len(data))},
        )
    if array.dtype in _ALLOWED_BYTES:
        check_bytes(array, np.frombuffer(data, np.uint8), field)


def check_bytes(array: ArrayType, data: np.ndarray, field: str) -> None:
    """Raises CallError if the element type does not allow a byte; most types allow all."""
    allowed = _ALLOWED_BYTES.get(array.dtype)
    if allowed is None or not data.size:
        return
    present = np.flatnonzero(np.bincount(data, minlength=256))
    if odd := [int(byte) for byte in present if int(byte) not in allowed]:
        raise CallError(
            Reason.INVALID_OPERAND,
            f"{field} of type {array.dtype.name} holds the byte {odd[0]:#04x}, which stands for no value of it; "
            "send one value a byte, as NumPy and ml_dtypes hold it",
            field=field,
        )


def read_header(messages: Iterator[Chunk | Any]) -> Any:
    """Returns the header of a stream.

    Raises:
        CallError: the stream begins with another message, or the header has unknown fields.
    """
    first = next(messages, None)
    if first is not None and not isinstance(first, Chunk):
        refuse_unknown_fields(first, first.header)
    if first is None or isinstance(first, Chunk) or first.WhichOneof("message") != "header":
        raise CallError(Reason.MALFORMED_REQUEST, "a stream begins with its header; send that first", field="header")
    return first.header


def put_inline(call: ServerCall, buffers: CallBuffers, inline: Sequence[bytes | None]) -> None:
    """Writes the operands that a message contains to the buffers of its call; None for those that it does not."""
    for operand, data in zip(buffers.operands, inline, strict=True):
        if data is None:
            continue
        if operand.HasField("span"):
            _copy(call, buffers, operand.span.offset, np.frombuffer(data, np.uint8))
        else:
            operand.inline = data


def _copy(call: ServerCall, buffers: CallBuffers, begin: int, data: np.ndarray) -> None:
    """Copies bytes into the memory of a call."""
    assert buffers.region is not None
    buffers.region.reserve(begin + data.size, lambda: call.check("receiving the operands"))
    np.copyto(buffers.region.view(begin, data.size), data)


class OperandReader:
    """Reads a call's operands into its buffers: a region, or the command itself if they are tiny.

    Args:
        max_chunk_bytes: the limit of data bytes in one chunk.
    """

    def __init__(
        self, operands: Sequence[OperandSource], buffers: CallBuffers, call: ServerCall, max_chunk_bytes: int
    ) -> None:
        self._operands = operands
        self._buffers = buffers
        self._call = call
        self._max_chunk_bytes = max_chunk_bytes

    def take_chunks(self, operands: Sequence[kernel_service_pb2.Operand], messages: Iterator[Chunk | Message]) -> None:
        """Reads the operands that come as chunks, in ascending order, each complete before the next."""
        for i, operand in enumerate(operands):
            array = self._operands[i].type
            if operand.WhichOneof("source") != "streamed" or array is None:
                continue
            self._put(i, 0, _NO_BYTES)
            received = 0
            while received < array.nbytes:
                self._call.check("receiving the operands")
                data = _expect(next(messages, None), i, received, array, self._max_chunk_bytes)
                check_bytes(array, data, f"operand {i}")
                self._put(i, received, data)
                received += data.size
        if next(messages, None) is not None:
            raise CallError(
                Reason.SIZE_MISMATCH,
                "a message came after the last byte of the last streamed operand; end the stream there",
                field="chunk",
            )

    def _put(self, index: int, position: int, data: np.ndarray) -> None:
        """Writes bytes of an operand, which come in ascending order, to its buffer."""
        operand = self._buffers.operands[index]
        if operand.HasField("span"):
            _copy(self._call, self._buffers, operand.span.offset + position, data)
        else:
            operand.inline += data.tobytes()


def _expect(
    message: Chunk | Message | None, index: int, received: int, array: ArrayType, max_chunk_bytes: int
) -> np.ndarray:
    """Returns the data of the next chunk."""
    if message is None:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"the stream ended after {received} of the {array.nbytes} bytes of operand {index}; "
            "send every byte of each streamed operand",
            field=f"operand {index}",
        )
    if not isinstance(message, Chunk):
        refuse_unknown_fields(message)
        raise CallError(Reason.MALFORMED_REQUEST, "a stream has one header; after it come chunks only", field="header")
    if message.index != index or message.offset != received:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"a chunk of operand {message.index} at byte {message.offset} came where operand {index} at byte "
            f"{received} was due; send operands in ascending order, without gaps",
            field="chunk",
        )
    nbytes = message.data.size
    if nbytes > max_chunk_bytes:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"a chunk of {nbytes} bytes came; at most {max_chunk_bytes} are allowed in one",
            field="chunk",
        )
    if not nbytes or received + nbytes > array.nbytes:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"a chunk of {nbytes} bytes came at byte {received} of operand {index}, which has "
            f"{array.nbytes}; a chunk has at least one byte and ends within its operand",
            field="chunk",
        )
    return message.data

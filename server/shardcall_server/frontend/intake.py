"""Operands as they come in: told types checked against the bytes, and the bytes brought to their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from shardcall.v1 import array_pb2, kernel_service_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.region import Region
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.wire import decode_array_type
from shardcall_worker.v1 import link_pb2

_NOT_SERVED = {
    "segment": "memory segments; send the operand inline or as a stream",
    "resident": "resident arrays; send the operand inline or as a stream",
}
_ALLOWED_BYTES = {"bool": frozenset({0, 1}), "uint4": frozenset(range(16)), "int4": frozenset(range(16))}


def check_operands(operands: Sequence[kernel_service_pb2.Operand], may_stream: bool) -> tuple[ArrayType | None, ...]:
    """The operands' types; None for one left out. Inline bytes are checked, streamed ones when they come.

    Args:
        operands: as sent.
        may_stream: whether chunks can follow.

    Raises:
        CallError: what an operand says of itself cannot be, or is not what it brings.
    """
    return tuple(_check_operand(operand, f"operand {i}", may_stream) for i, operand in enumerate(operands))


def _check_operand(operand: kernel_service_pb2.Operand, field: str, may_stream: bool) -> ArrayType | None:
    source = operand.WhichOneof("source")
    if not operand.HasField("type"):
        if source is None:
            return None
        raise CallError(Reason.MALFORMED_REQUEST, f"{field} has data and no type; set its type", field=field)
    array = decode_array_type(operand.type, field)
    if source is None:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field} has a type and no data; set inline, or streamed and send chunks",
            field=field,
        )
    if source in _NOT_SERVED:
        raise CallError(Reason.NOT_SUPPORTED, f"{field}: this server does not serve {_NOT_SERVED[source]}", field=field)
    if source == "streamed" and not may_stream:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field} is streamed in a unary call; send it inline, or use ExecuteStream",
            field=field,
        )
    if source == "inline":
        check_inline(array, operand.inline.data, field)
    return array


def check_inline(array: ArrayType, data: bytes, field: str) -> None:
    """Raises unless the bytes are what the type needs."""
    if len(data) != array.nbytes:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"{field} is {shorten(str(array))}, which is {array.nbytes} bytes, and {len(data)} came; "
            "send row-major bytes without padding",
            field=field,
            metadata={"expected": str(array.nbytes), "given": str(len(data))},
        )
    check_bytes(array, np.frombuffer(data, np.uint8), field)


def check_bytes(array: ArrayType, data: np.ndarray, field: str) -> None:
    """Raises if any byte is none that the element type allows; most types allow all."""
    allowed = _ALLOWED_BYTES.get(array.dtype.name)
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


class Intake:
    """Brings a call's operands into its region, or into the command where they are tiny.

    Args:
        types: the operands' types.
        offsets: where in the region each begins; None for into the command.
        region: the call's region; None where nothing goes there.
        call: whose they are.
        max_chunk_bytes: the most data bytes in one chunk.
    """

    def __init__(
        self,
        types: Sequence[ArrayType | None],
        offsets: Sequence[int | None],
        region: Region | None,
        call: Call,
        max_chunk_bytes: int,
    ) -> None:
        self._call = call
        self._max_chunk_bytes = max_chunk_bytes
        self._types = types
        self._offsets = offsets
        self._region = region
        self.data = [link_pb2.TensorData() for _ in types]

    def take_inline(self, operands: Sequence[kernel_service_pb2.Operand]) -> None:
        """Brings in the operands that came in the header."""
        for i, operand in enumerate(operands):
            if operand.WhichOneof("source") == "inline":
                self._put(i, 0, operand.inline.data)

    def take_chunks(
        self,
        operands: Sequence[kernel_service_pb2.Operand],
        chunks: Iterator[kernel_service_pb2.ExecuteStreamRequest],
    ) -> None:
        """Brings in the operands that come as chunks: in ascending order, each whole before the next."""
        for i, operand in enumerate(operands):
            array = self._types[i]
            if operand.WhichOneof("source") != "streamed" or array is None:
                continue
            self._put(i, 0, b"")
            received = 0
            while received < array.nbytes:
                self._call.check("receiving the operands")
                data = _expect(next(chunks, None), i, received, array, self._max_chunk_bytes)
                check_bytes(array, np.frombuffer(data, np.uint8), f"operand {i}")
                self._put(i, received, data)
                received += len(data)
        if next(chunks, None) is not None:
            raise CallError(
                Reason.SIZE_MISMATCH,
                "a message came after the last byte of the last streamed operand; end the stream there",
                field="chunk",
            )

    def _put(self, index: int, position: int, data: bytes) -> None:
        """Puts bytes of an operand, which come in ascending order, where they belong."""
        offset = self._offsets[index]
        if offset is None:
            self.data[index].inline += data
            return
        assert self._region is not None
        self.data[index].region_offset = offset
        begin = offset + position
        self._region.reserve(begin + len(data), lambda: self._call.check("receiving the operands"))
        np.copyto(self._region.bytes[begin : begin + len(data)], np.frombuffer(data, np.uint8))


def _expect(
    message: kernel_service_pb2.ExecuteStreamRequest | None,
    index: int,
    received: int,
    array: ArrayType,
    max_chunk_bytes: int,
) -> bytes:
    if message is None:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"the stream ended after {received} of the {array.nbytes} bytes of operand {index}; "
            "send every byte of each streamed operand",
            field=f"operand {index}",
        )
    if message.WhichOneof("message") != "chunk":
        raise CallError(Reason.MALFORMED_REQUEST, "a stream has one header; after it come chunks only", field="header")
    chunk: array_pb2.TensorChunk = message.chunk
    if chunk.index != index or chunk.offset != received:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"a chunk of operand {chunk.index} at byte {chunk.offset} came where operand {index} at byte "
            f"{received} was due; send operands in ascending order, without gaps",
            field="chunk",
        )
    if len(chunk.data) > max_chunk_bytes:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"a chunk of {len(chunk.data)} bytes came; at most {max_chunk_bytes} are allowed in one",
            field="chunk",
        )
    if not chunk.data or received + len(chunk.data) > array.nbytes:
        raise CallError(
            Reason.SIZE_MISMATCH,
            f"a chunk of {len(chunk.data)} bytes came at byte {received} of operand {index}, which has "
            f"{array.nbytes}; a chunk has at least one byte and ends within its operand",
            field="chunk",
        )
    return chunk.data

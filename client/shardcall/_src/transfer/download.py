"""Reads the answer to a call, and checks it against the protocol."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from shardcall._src.display.meters import SILENT, Meter
from shardcall._src.memory.result_buffer import ResultBuffer
from shardcall.v1 import array_service_pb2, kernel_pb2, kernel_service_pb2, timing_pb2
from shardcall_core.types import arrays
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.element_types import DTYPES
from shardcall_core.types.errors import InvalidOperandError, ProtocolError
from shardcall_core.wire.chunk_codec import ArrayMessage, CallMessage, Chunk

_LITTLE = sys.byteorder == "little"

_Message: TypeAlias = CallMessage | ArrayMessage


@dataclass(frozen=True)
class ResidentResult:
    """A result that stays on the mesh.

    Attributes:
        type: the shape and element type.
        handle: the id of the array on the server.
        value: the bytes of a small one, if the answer has them.
    """

    type: Array
    handle: bytes
    value: bytes = b""


class Answer(NamedTuple):
    """The answer to a call; its arrays own their memory, and its plan is serialized."""

    results: tuple[NDArray | ResidentResult, ...]
    plan: bytes
    cache: kernel_pb2.CacheAnswer
    timing: timing_pb2.Timing


def unary_answer(
    response: kernel_service_pb2.ExecuteResponse, buffer: ResultBuffer | None = None, plan: bytes | None = None
) -> Answer:
    """Returns the answer in one message.

    Args:
        buffer: the result buffer of the call, if it has one.
        plan: the serialized plan, if it is not in the message.

    Raises:
        ProtocolError: if a result is streamed, or has another number of bytes than its type.
    """
    results: list[NDArray | ResidentResult] = []
    for index, result in enumerate(response.results):
        # The usual case; `_complete` handles and refuses the others.
        dtype, shape, data = DTYPES.get(result.type.element_type), tuple(result.type.shape), result.inline.data
        if data and dtype and _LITTLE and min(shape, default=0) >= 0 and math.prod(shape) * dtype.itemsize == len(data):
            results.append(np.ndarray(shape, dtype, data).copy())
        else:
            results.append(_complete(index, result, buffer))
    if plan is None:
        plan = response.plan.SerializeToString()
    return Answer(tuple(results), plan, response.cache, response.timing)


def stream_answer(
    messages: Iterator[CallMessage], meter: Meter = SILENT, *, max_bytes: int, buffer: ResultBuffer | None = None
) -> Answer:
    """Returns the answer in a stream of messages: header, chunks, timing.

    Args:
        messages: the stream, which is read to its end.
        meter: counts the bytes of chunks.
        max_bytes: the most bytes of all results; 0 for no limit.
        buffer: the result buffer of the call, if it has one.

    Raises:
        ProtocolError: if messages are missing, too many or out of order, or bytes are missing or too many.
    """
    first = next(messages, None)
    if isinstance(first, Chunk) or first is None or not first.HasField("header"):
        raise broken(f"{_message_field(first)} came where the header was due")
    results, timing = _collect(first.header.results, messages, meter, max_bytes, buffer)
    return Answer(results, first.header.plan.SerializeToString(), first.header.cache, timing)


def array_answer(
    messages: Iterator[ArrayMessage],
    meter: Meter = SILENT,
    *,
    max_bytes: int,
    buffer: ResultBuffer | None = None,
    on_version: Callable[[array_service_pb2.NameVersion], None] | None = None,
) -> NDArray:
    """Returns the array in a stream of messages; arguments and errors as for `stream_answer`.

    Args:
        on_version: called with the version of the values, which those of a name have.
    """
    first = next(messages, None)
    if isinstance(first, Chunk) or first is None or not first.HasField("header"):
        raise broken(f"{_message_field(first)} came where the header was due")
    results, _ = _collect([first.header.array], messages, meter, max_bytes, buffer)
    if on_version is not None:
        on_version(first.header.version)
    return only_array(results)


def only_array(results: Sequence[NDArray | ResidentResult]) -> NDArray:
    """Returns the array that the answer to a read has.

    Raises:
        ProtocolError: if it has none, or several.
    """
    if len(results) != 1 or isinstance(results[0], ResidentResult):
        raise broken("the answer to a read is not one array")
    return results[0]


def broken(detail: str) -> ProtocolError:
    """Returns the error for an answer that violates the protocol."""
    return ProtocolError(f"the server's answer breaks the contract: {detail}")


def _collect(
    headers: Sequence[kernel_service_pb2.Result],
    messages: Iterator[_Message],
    meter: Meter,
    max_bytes: int,
    buffer: ResultBuffer | None,
) -> tuple[tuple[NDArray | ResidentResult, ...], timing_pb2.Timing]:
    types = [_type(i, result) for i, result in enumerate(headers) if result.WhichOneof("source") != "resident"]
    # Checked before memory is allocated.
    if max_bytes and sum(field.nbytes for field in types) > max_bytes:
        raise broken(f"the results {', '.join(map(str, types))} are over {max_bytes} bytes")
    results = [_Assembly(i, result, buffer) for i, result in enumerate(headers)]
    meter.download(sum(result.missing_bytes for result in results))
    current = 0
    for message in messages:
        if not isinstance(message, Chunk):
            break
        if message.index >= len(results) or message.index < current:
            raise broken(f"a chunk of result {message.index} came after result {current} of {len(results)}")
        current = message.index
        meter.add(message.data.size)
        results[current].add(message)
    else:
        raise broken("the stream ended before the timing")
    if (field := _message_field(message)) != "timing":
        raise broken(f"a {field} came where a chunk was due")
    if next(messages, None) is not None:
        raise broken("a message came after the timing")
    return tuple(result.finish() for result in results), message.timing


class _Assembly:
    """A result: complete at once, or filled by chunks in ascending order, without gaps."""

    def __init__(self, index: int, result: kernel_service_pb2.Result, buffer: ResultBuffer | None) -> None:
        self._index = index
        self._to_fill = self._filled = 0
        self._result: NDArray | ResidentResult
        source = result.WhichOneof("source")
        if source == "streamed":
            self._result = arrays.empty(_type(index, result))
            self._to_fill = self._result.nbytes
        else:
            self._result = _complete(index, result, buffer)
            if source == "inline":
                self._to_fill = self._filled = len(result.inline.data)

    @property
    def missing_bytes(self) -> int:
        return self._to_fill - self._filled

    def add(self, chunk: Chunk) -> None:
        if chunk.offset != self._filled:
            raise broken(f"a chunk of result {self._index} is for byte {chunk.offset}, not {self._filled}")
        end = self._filled + chunk.data.size
        if isinstance(self._result, ResidentResult) or end > self._to_fill:
            raise broken(f"result {self._index} came with more than its {self._to_fill} bytes")
        np.copyto(arrays.as_bytes_view(self._result)[self._filled : end], chunk.data)
        self._filled = end

    def finish(self) -> NDArray | ResidentResult:
        if self._filled != self._to_fill:
            raise broken(f"result {self._index} came with {self._filled} of {self._to_fill} bytes")
        return self._result if isinstance(self._result, ResidentResult) else arrays.native(self._result)


def _complete(index: int, result: kernel_service_pb2.Result, buffer: ResultBuffer | None) -> NDArray | ResidentResult:
    """Returns a result that has no chunks."""
    result_type = _type(index, result)
    source = result.WhichOneof("source")
    if source == "inline":
        data = result.inline.data
        if len(data) != result_type.nbytes:  # checked before memory is allocated
            raise broken(f"result {index} came with {len(data)} of {result_type.nbytes} bytes")
        return arrays.from_bytes(data, result_type)
    if source == "resident":
        if len(result.value) not in (0, result_type.nbytes):
            raise broken(f"result {index} came with {len(result.value)} of {result_type.nbytes} bytes")
        return ResidentResult(result_type, result.resident.handle, result.value)
    if source == "segment":
        return _in_buffer(index, result, result_type, buffer)
    has = "no source that this client knows" if source is None else "chunks, in an answer of one message"
    raise broken(f"result {index} has {has}")


def _in_buffer(
    index: int, result: kernel_service_pb2.Result, result_type: Array, buffer: ResultBuffer | None
) -> NDArray:
    if not result_type.nbytes:
        return arrays.empty(result_type)
    array = None if buffer is None else buffer.claim(result.segment, result_type)
    if array is None:
        raise broken(f"result {index} is outside the result buffer")
    return array


def _type(index: int, result: kernel_service_pb2.Result) -> Array:
    try:
        result_type = arrays.from_proto(result.type)
    except InvalidOperandError:
        raise broken(f"result {index} has shape {list(result.type.shape)}") from None
    if result_type is None:
        raise broken(f"result {index} has no element type")
    return result_type


def _message_field(message: _Message | None) -> str:
    if message is None:
        return "nothing"
    return "chunk" if isinstance(message, Chunk) else message.WhichOneof("message") or "message of no kind"

"""The answer to a call, checked against the contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from shardcall import arrays
from shardcall.arrays import Array, NDArray
from shardcall.chunk_codec import Bytes, Chunk
from shardcall.errors import ProtocolError
from shardcall.v1 import kernel_pb2, kernel_service_pb2, timing_pb2

Message: TypeAlias = kernel_service_pb2.ExecuteStreamResponse | Chunk


@dataclass(frozen=True)
class Answer:
    """What a call came back with; the arrays own their memory."""

    arrays: tuple[NDArray, ...]
    plan: kernel_pb2.Plan
    cache: kernel_pb2.CacheAnswer
    timing: timing_pb2.Timing


def unary_answer(response: kernel_service_pb2.ExecuteResponse) -> Answer:
    """Returns the answer that one message holds.

    Raises:
        ProtocolError: if a result is not inline or its bytes are not those that its type needs.
    """
    results = []
    for index, result in enumerate(response.results):
        kind = _type(index, result)
        if result.WhichOneof("source") != "inline" or len(result.inline.data) != kind.nbytes:
            raise _broken(f"result {index} holds {len(result.inline.data)} of {kind.nbytes} bytes")
        array = arrays.empty(kind)
        np.copyto(arrays.as_bytes_view(array), np.frombuffer(result.inline.data, np.uint8))
        results.append(arrays.native(array))
    return Answer(tuple(results), response.plan, response.cache, response.timing)


def stream_answer(messages: Iterator[Message], most_bytes: int) -> Answer:
    """Returns the answer that a stream of messages holds: header, chunks, timing.

    Args:
        messages: the stream; read to its end.
        most_bytes: the most that results may hold together; 0 for no limit.

    Raises:
        ProtocolError: if messages are missing, too many or out of order, or bytes are missing or too many.
    """
    header = _header(next(messages, None))
    kinds = [_type(i, result) for i, result in enumerate(header.results)]
    # Refused before memory is taken for them.
    if most_bytes and sum(kind.nbytes for kind in kinds) > most_bytes:
        raise _broken(f"the results {', '.join(map(str, kinds))} are over {most_bytes} bytes")
    results = [_Assembly(i, *pair) for i, pair in enumerate(zip(header.results, kinds, strict=True))]
    current = 0
    for message in messages:
        if not isinstance(message, Chunk):
            break
        if message.index >= len(results) or message.index < current:
            raise _broken(f"a chunk of result {message.index} came after result {current} of {len(results)}")
        current = message.index
        results[current].add(message)
    else:
        raise _broken("the stream ended before the timing")
    if (kind := _kind(message)) != "timing":
        raise _broken(f"a {kind} came where a chunk was due")
    if next(messages, None) is not None:
        raise _broken("a message came after the timing")
    return Answer(tuple(result.finish() for result in results), header.plan, header.cache, message.timing)


class _Assembly:
    """A result that is filled by chunks in ascending order, without gaps."""

    def __init__(self, index: int, result: kernel_service_pb2.Result, kind: Array) -> None:
        self._index = index
        self._array = arrays.empty(kind)
        self._bytes = arrays.as_bytes_view(self._array)
        self._filled = 0
        if result.WhichOneof("source") == "inline":
            self._append(np.frombuffer(result.inline.data, np.uint8))

    def add(self, chunk: Chunk) -> None:
        if chunk.offset != self._filled:
            raise _broken(f"a chunk of result {self._index} is for byte {chunk.offset}, not {self._filled}")
        self._append(chunk.data)

    def finish(self) -> NDArray:
        if self._filled != self._bytes.size:
            raise _broken(f"result {self._index} came with {self._filled} of {self._bytes.size} bytes")
        return arrays.native(self._array)

    def _append(self, data: Bytes) -> None:
        end = self._filled + data.size
        if end > self._bytes.size:
            raise _broken(f"result {self._index} came with more than its {self._bytes.size} bytes")
        np.copyto(self._bytes[self._filled : end], data)
        self._filled = end


def _type(index: int, result: kernel_service_pb2.Result) -> Array:
    if any(size < 0 for size in result.type.shape):
        raise _broken(f"result {index} has shape {list(result.type.shape)}")
    kind = arrays.from_proto(result.type)
    if kind is None:
        raise _broken(f"result {index} has no element type")
    return kind


def _header(message: Message | None) -> kernel_service_pb2.ExecuteResponse:
    if isinstance(message, kernel_service_pb2.ExecuteStreamResponse) and message.HasField("header"):
        return message.header
    raise _broken(f"{_kind(message)} came where the header was due")


def _kind(message: Message | None) -> str:
    if message is None:
        return "nothing"
    return "chunk" if isinstance(message, Chunk) else message.WhichOneof("message") or "message of no kind"


def _broken(what: str) -> ProtocolError:
    return ProtocolError(
        f"the server's answer breaks the contract: {what}; client and server may be of different versions"
    )

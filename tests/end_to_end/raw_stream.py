"""A client of CallStream that sends frames as a test writes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, open_channel, tensor
from google.rpc import error_details_pb2, status_pb2
from servers import ServerProcess

from shardcall.v1 import call_stream_pb2, kernel_service_pb2

PATIENCE_S = 120.0
TYPES = [tensor(8)]
LEASE = bytes(31) + b"p"


class Stream:
    """A call stream.

    Attributes:
        rpc: the RPC.
        got: the answers so far, by number; those that were not claimed with `answer`.
        order: the numbers of all answers in the order of arrival.
        draining: whether the server drains.
    """

    def __init__(self, channel: grpc.Channel, timeout: float | None = PATIENCE_S) -> None:
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()
        method = channel.stream_stream("/shardcall.v1.KernelService/CallStream")
        self.rpc = method(iter(self._frames.get, None), timeout=timeout)
        self.got: dict[int, call_stream_pb2.StreamedAnswer] = {}
        self.order: list[int] = []
        self.draining = False

    def send(self, *items: call_stream_pb2.CallStreamItem) -> None:
        self.send_bytes(call_stream_pb2.CallStreamRequest(items=items).SerializeToString())

    def send_bytes(self, frame: bytes) -> None:
        self._frames.put(frame)

    def half_close(self) -> None:
        self._frames.put(None)

    def read(self) -> None:
        """Reads a frame."""
        frame = call_stream_pb2.CallStreamResponse.FromString(next(self.rpc))
        self.draining |= frame.draining
        for answer in frame.answers:
            assert answer.number not in self.got
            self.got[answer.number] = answer
            self.order.append(answer.number)

    def answer(self, number: int) -> call_stream_pb2.StreamedAnswer:
        """Returns the answer to a call."""
        while number not in self.got:
            self.read()
        return self.got.pop(number)

    def response(self, number: int) -> kernel_service_pb2.ExecuteResponse:
        answer = self.answer(number)
        assert not answer.status, status_pb2.Status.FromString(answer.status)
        return kernel_service_pb2.ExecuteResponse.FromString(answer.response)

    def result(self, number: int) -> np.ndarray:
        return np.frombuffer(self.response(number).results[0].inline.data)

    def refusal(self, number: int) -> str:
        """Returns the reason and the message of a failed call."""
        status = status_pb2.Status.FromString(self.answer(number).status)
        info = error_details_pb2.ErrorInfo()
        assert status.details[0].Unpack(info)
        return f"{info.reason}: {status.message}"

    def error(self) -> grpc.RpcError:
        """Returns the error that ends the stream."""
        with pytest.raises(grpc.RpcError) as caught:
            self._read_all()
        return caught.value

    def end(self) -> grpc.StatusCode:
        """Reads to the end; returns the code."""
        with pytest.raises(StopIteration):
            self._read_all()
        return self.rpc.code()

    def _read_all(self) -> None:
        while True:
            self.read()


def prepare(slot: int = 0, of: Any = None, types: Any = TYPES, **fields: Any) -> call_stream_pb2.CallStreamItem:
    return call_stream_pb2.CallStreamItem(
        prepare=call_stream_pb2.PrepareCall(slot=slot, call=of or call(), operands=types, **fields)
    )


def _source(operand: np.ndarray | bytes | None) -> call_stream_pb2.StreamedOperand:
    if operand is None:
        return call_stream_pb2.StreamedOperand()
    if isinstance(operand, bytes):
        return call_stream_pb2.StreamedOperand(handle=operand)
    return call_stream_pb2.StreamedOperand(inline=operand.tobytes())


def item(
    number: int, *operands: np.ndarray | bytes | None, slot: int = 0, **fields: Any
) -> call_stream_pb2.CallStreamItem:
    """A call with arrays in the message, handles of arrays on the mesh, or operands left out."""
    sources = [_source(operand) for operand in operands]
    return call_stream_pb2.CallStreamItem(
        call=call_stream_pb2.StreamedCall(number=number, slot=slot, operands=sources, **fields)
    )


def cancel(*numbers: int) -> call_stream_pb2.CallStreamItem:
    return call_stream_pb2.CallStreamItem(cancel=call_stream_pb2.CancelCalls(numbers=numbers))


def delete(*handles: bytes) -> call_stream_pb2.CallStreamItem:
    return call_stream_pb2.CallStreamItem(delete=call_stream_pb2.DeleteStreamedArrays(handles=handles))


def read(number: int, handle: bytes, **fields: Any) -> call_stream_pb2.CallStreamItem:
    return call_stream_pb2.CallStreamItem(read=call_stream_pb2.ReadArray(number=number, handle=handle, **fields))


def put(number: int, x: np.ndarray, handle: bytes, **fields: Any) -> call_stream_pb2.CallStreamItem:
    """A put."""
    fields = {"type": tensor(*x.shape), "inline": x.tobytes(), "lease_id": LEASE, **fields}
    return call_stream_pb2.CallStreamItem(put=call_stream_pb2.PutStreamedArray(number=number, handle=handle, **fields))


@contextmanager
def opened(server: ServerProcess) -> Iterator[Stream]:
    with open_channel(server.address) as channel:
        stream = Stream(channel)
        try:
            yield stream
        finally:
            stream.rpc.cancel()
            stream.half_close()

"""A call stream whose answers are read by a thread, for tests that misuse it."""

import threading
from contextlib import suppress
from typing import Self

import grpc
import numpy as np
from end_to_end import raw_stream
from end_to_end.messages import call, tensor
from end_to_end.processes import wait_for
from google.rpc import error_details_pb2, status_pb2

from shardcall.v1 import call_stream_pb2, kernel_pb2, kernel_service_pb2

Item = call_stream_pb2.CallStreamItem
run, read, put = raw_stream.item, raw_stream.read, raw_stream.put
cancel, delete = raw_stream.cancel, raw_stream.delete


def prepare(slot: int, kernel_call: kernel_pb2.KernelCall, *shapes: tuple[int, ...], **fields: object) -> Item:
    """Assigns a slot to a call on arrays of float64."""
    return raw_stream.prepare(slot, kernel_call, [tensor(*shape) for shape in shapes], **fields)


def diff_of(count: int, slot: int = 0) -> Item:
    """Assigns a slot to the difference of so many numbers."""
    return prepare(slot, call(), (count,))


def reason(answer: call_stream_pb2.StreamedAnswer) -> str:
    """The reason of a failed call; empty if it succeeded."""
    return error_info(answer).reason if answer.status else ""


def error_info(answer: call_stream_pb2.StreamedAnswer) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    status = status_pb2.Status.FromString(answer.status)
    assert any(detail.Unpack(info) for detail in status.details), status
    return info


def result(answer: call_stream_pb2.StreamedAnswer) -> np.ndarray:
    """The only result of a call, an array of float64."""
    assert not answer.status, status_pb2.Status.FromString(answer.status)
    (tensor_,) = kernel_service_pb2.ExecuteResponse.FromString(answer.response).results
    return np.frombuffer(tensor_.inline.data).reshape(tensor_.type.shape)


class RawCallStream(raw_stream.Stream):
    """A stream whose answers are read by a thread.

    Args:
        channel: to the server.

    Attributes:
        answers: by the numbers of their calls.
        reads: cleared, the thread reads nothing.
    """

    def __init__(self, channel: grpc.Channel) -> None:
        super().__init__(channel, timeout=None)
        self.answers = self.got
        self.reads = threading.Event()
        self.reads.set()
        self._thread = threading.Thread(target=self._read_all, name="raw call stream", daemon=True)
        self._thread.start()

    def read(self) -> None:
        """Reads a frame."""
        super().read()
        self.reads.wait()

    def answer(self, number: int) -> call_stream_pb2.StreamedAnswer:
        """Waits for the answer to a call."""
        wait_for(lambda: number in self.answers or not self._thread.is_alive())
        assert number in self.answers, self.rpc
        return self.answers[number]

    def half_close(self) -> None:
        """Sends no more, and waits until the server has ended the stream."""
        super().half_close()
        self.wait_ended()

    def wait_ended(self) -> grpc.StatusCode:
        """Waits until the stream has ended; returns its status."""
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.rpc.code()

    def _read_all(self) -> None:
        with suppress(grpc.RpcError, StopIteration):
            super()._read_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.reads.set()
        super().half_close()
        self.rpc.cancel()
        self._thread.join(60)

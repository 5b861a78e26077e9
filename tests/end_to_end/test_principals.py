"""Principals of the token file: the end of their tokens, their limits, and what they have and do."""

import threading
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, details, execute, header, open_channel, operand
from end_to_end.principals import EXPIRED
from end_to_end.processes import wait_for
from end_to_end.raw_stream import Stream, item, prepare, put

from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc

X = np.arange(8.0)


def test_a_call_in_progress_ends_after_its_token_has_expired(principals, admin):
    ada, expired = principals.make("ada"), threading.Event()

    def upload() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([4, 100])
        expired.wait(60)
        yield chunk(0, 0, 3200)

    with open_channel(principals.server.address, token=ada.token) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        answers = stub.ExecuteStream(upload(), timeout=120)
        wait_for(lambda: admin.usage().by_principal["ada"].calls == 1)
        principals.expire(ada)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Execute(execute(operand(X)), timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert EXPIRED in caught.value.details()
        assert details(caught.value)["ErrorInfo"].metadata["expired_at"] == "2026-01-31T12:00:00Z"
        expired.set()
        assert [message.WhichOneof("message") for message in answers] == ["header", "chunk", "timing"]


def test_an_open_stream_ends_in_order_and_serves_nothing_new(principals, admin):
    ada = principals.make("streaming")
    with open_channel(principals.server.address, token=ada.token) as channel:
        stream = Stream(channel)
        stream.send(prepare(), item(1, X), put(2, X, bytes(16)))
        np.testing.assert_array_equal(stream.result(1), np.ones(7))
        assert stream.response(2) is not None
        principals.expire(ada)
        assert stream.end() is grpc.StatusCode.OK
        assert stream.draining
        stream = Stream(channel)
        assert EXPIRED in stream.error().details()
    assert admin.usage().by_principal["streaming"].arrays == 1

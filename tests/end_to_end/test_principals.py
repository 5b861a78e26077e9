"""Principals of the token file: the end of their tokens, their limits, and what they have and do."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, details, execute, header, open_channel, operand
from end_to_end.principals import EXPIRED
from end_to_end.processes import wait_for
from end_to_end.raw_stream import Stream, item, prepare, put
from typer.testing import CliRunner

import shardcall as sc
from shardcall.cli.app import make_app
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc
from shardcall_core.wire import token_file

X = np.arange(8.0)


def command(*arguments: str) -> Any:
    return CliRunner().invoke(make_app(), arguments, env={"COLUMNS": "160"})


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


def test_a_rotation_voids_the_old_token(principals):
    ada = principals.make("ada")
    with principals.connect(ada) as before:
        before.diff(X)
        assert command("token", "rotate", "ada", "--token-file", principals.path).exit_code == 0
        rotated = principals.entries["ada"] = token_file.entry_of(token_file.read(principals.path), "ada")
        wait_for(lambda: principals.code(rotated.token) is grpc.StatusCode.OK)
        assert principals.code(ada.token) is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(sc.AccessDeniedError, match="was removed"):
            before.diff(X)

"""CallStream by a client of the contract: operands, limits of items, and what a token may do."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, details, mesh, open_channel, spec, tensor, token_of
from end_to_end.raw_stream import Stream, delete, item, opened, prepare

import shardcall as sc
from shardcall.v1 import array_pb2, call_stream_pb2

X = np.arange(8.0) ** 2
OMITTED = array_pb2.ArrayType()


@pytest.fixture
def stream(server) -> Iterator[Stream]:
    with opened(server) as opened_stream:
        yield opened_stream


def call_item(number: int, *sources: dict[str, bytes], slot: int = 0, **fields) -> call_stream_pb2.CallStreamItem:
    operands = [call_stream_pb2.StreamedOperand(**source) for source in sources]
    return call_stream_pb2.CallStreamItem(
        call=call_stream_pb2.StreamedCall(number=number, slot=slot, operands=operands, **fields)
    )


def test_the_first_frame_is_empty_and_comes_before_any_call(stream):
    assert call_stream_pb2.CallStreamResponse.FromString(next(stream.rpc)) == call_stream_pb2.CallStreamResponse()


def test_omitted_operands_have_neither_type_nor_source(stream):
    stream.send(
        prepare(types=[tensor(8), OMITTED, tensor()]), call_item(1, {"inline": X.tobytes()}, {}, {"inline": bytes(8)})
    )
    np.testing.assert_array_equal(stream.result(1), np.diff(X, append=0.0))
    stream.send(
        call_item(2, {"inline": X.tobytes()}, {"inline": bytes(8)}, {"inline": bytes(8)}),
        call_item(3, {"inline": X.tobytes()}, {}, {}),
        call_item(4, {"inline": X.tobytes()}, {"handle": b""}, {"inline": bytes(8)}),
    )
    assert "operand 1 has bytes and no type" in stream.refusal(2)
    assert "operand 2 has a type and no bytes" in stream.refusal(3)
    assert "operand 1 has an empty handle" in stream.refusal(4)


@pytest.mark.parametrize("timeout", [-1.0, -math.inf, math.nan])
def test_what_is_no_timeout_is_refused(stream, timeout):
    stream.send(prepare(), item(1, X, timeout_seconds=timeout), item(2, X, timeout_seconds=math.inf), item(3, X))
    assert stream.refusal(1).startswith("MALFORMED_REQUEST: timeout_seconds is")
    for number in (2, 3):
        np.testing.assert_array_equal(stream.result(number), np.diff(X))


def test_arrays_larger_than_a_message_may_hold_are_refused_and_calls_behind_them_run(stream, client):
    """A sum of a column and a row of 64 KiB each."""
    max_bytes = client.server_info().limits.max_inline_bytes
    count = 2 * math.isqrt(max_bytes // 8)
    side = np.zeros(count)
    stream.send(
        prepare(of=call("add"), types=[tensor(count, 1), tensor(1, count)]),
        prepare(1),
        item(1, side, side),
        item(2, X, slot=1),
    )
    assert stream.refusal(1).startswith("STREAM_REQUIRED: the results have")
    np.testing.assert_array_equal(stream.result(2), np.diff(X))


def test_a_call_may_refuse_transfers(stream, client):
    with client.put(np.arange(16.0), mesh=sc.Mesh(x=4), spec=sc.P("x")) as kept:
        moved = call(mesh=mesh(x=2), in_specs=[spec("x")])
        handle = bytes.fromhex(kept.handle)
        stream.send(
            prepare(0, moved, [OMITTED], refuse_transfers=True),
            prepare(1, moved, [OMITTED]),
            item(1, handle),
            item(2, handle, slot=1),
        )
        assert stream.refusal(1).startswith("TRANSFER_REQUIRED")
        answer = stream.answer(2)
        assert [transfer.operand for transfer in answer.transfers] == [0]
        assert not answer.plan.transfers


def test_more_handles_than_one_deletion_may_have_end_the_stream(stream):
    stream.send(delete(*(os.urandom(16) for _ in range(1024))), prepare(), item(1, X))
    stream.answer(1)
    stream.send(delete(*(os.urandom(16) for _ in range(1025))))
    error = stream.error()
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error)["ErrorInfo"].metadata["allowed"] == "1024"


def test_a_token_without_the_scope_of_arrays_keeps_none_and_its_deletions_are_ignored(server, client):
    with open_channel(server.address, token=token_of("runner")) as channel, client.put(X) as kept:
        stream = Stream(channel)
        stream.send(
            prepare(0, call("negative"), keep_results=True, lease_id=os.urandom(32)),
            prepare(1),
            item(1, X, result_handles=[os.urandom(16)]),
            delete(bytes.fromhex(kept.handle)),
            item(2, X, slot=1),
        )
        assert stream.refusal(1).startswith("SCOPE_MISSING")
        np.testing.assert_array_equal(stream.result(2), np.diff(X))
        np.testing.assert_array_equal(kept, X)
        stream.half_close()
        assert stream.end() is grpc.StatusCode.OK


def test_a_token_without_the_scope_of_calls_opens_no_stream(server):
    with open_channel(server.address, token=token_of("watcher")) as channel:
        error = Stream(channel).error()
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert details(error)["ErrorInfo"].reason == "SCOPE_MISSING"

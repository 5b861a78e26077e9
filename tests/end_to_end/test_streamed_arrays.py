"""Puts and reads of arrays by call streams: in order with calls, with their errors and their limits."""

import math
import os
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from client_parts import remote_arrays_of
from end_to_end.messages import call, open_channel, tensor, token_of
from end_to_end.raw_stream import TYPES, Stream, delete, item, opened, prepare, put, read

import shardcall as sc
from shardcall._src.programs.pending_calls import PendingCall
from shardcall.v1 import (
    array_pb2,
    array_service_pb2,
    array_service_pb2_grpc,
    call_stream_pb2,
    kernel_service_pb2,
    mesh_pb2,
)

X = np.arange(8.0) ** 2
X2 = mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="x", size=2)])
INVALID = {"of": call("power"), "types": [tensor(3, element_type=array_pb2.ELEMENT_TYPE_INT64)] * 2}


def test_the_answer_to_a_put_is_its_handle_and_its_placement(stream, server):
    first, second = os.urandom(16), os.urandom(16)
    stream.send(put(1, X, first, mesh=X2))
    answer = stream.answer(1)
    assert {field.name for field, _ in answer.ListFields()} == {"number", "response", "plan"}
    response = kernel_service_pb2.ExecuteResponse.FromString(answer.response)
    assert {field.name for field, _ in response.ListFields()} == {"results", "timing"}
    (result,) = response.results
    assert (result.type, result.resident.handle, result.value) == (tensor(8), first, b"")
    with open_channel(server.address) as channel:
        arrays = array_service_pb2_grpc.ArrayServiceStub(channel)
        described = arrays.DescribeArray(array_service_pb2.DescribeArrayRequest(handle=first)).array
    assert (described.mesh, described.placement) == (answer.plan.mesh, answer.plan.results[0])
    assert described.device_bytes == X.nbytes
    stream.send(put(2, -X, second, mesh=X2), read(3, first), read(4, second), delete(first, second))
    again = stream.answer(2)
    assert (again.plan_slot, again.HasField("plan")) == (answer.plan_slot, False)
    np.testing.assert_array_equal(stream.result(3), X)
    np.testing.assert_array_equal(stream.result(4), -X)


def test_later_items_use_the_array_without_waiting_for_the_answer(stream):
    x, y = os.urandom(16), os.urandom(16)
    for first in (0, 10):
        stream.send(
            kept_slot(),
            put(first, X, x),
            item(first + 1, x, result_handles=[y]),
            delete(x),
            read(first + 2, y),
            read(first + 3, x),
            delete(y),
        )
        np.testing.assert_array_equal(stream.result(first + 2), -X)
        assert stream.refusal(first + 3).startswith("ARRAY_LOST: ")
        stream.response(first)
        stream.response(first + 1)
        x, y = os.urandom(16), os.urandom(16)


def test_items_that_use_the_array_of_a_refused_put_fail_with_its_error(stream):
    handle = os.urandom(16)
    stream.send(kept_slot(), put(1, X, handle, inline=bytes(9)), item(2, handle), read(3, handle))
    for number in (1, 2, 3):
        assert stream.refusal(number).startswith("SIZE_MISMATCH: operand 0 is float64[8], which is 64 bytes")


def test_invalid_puts_are_refused_alone(stream):
    handle, good = os.urandom(16), os.urandom(16)
    unknown = mesh_pb2.OptionalPartitionSpec(
        spec=mesh_pb2.PartitionSpec(entries=[mesh_pb2.PartitionSpecEntry(axis_names=["z"])])
    )
    long = mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="x" * (16 << 10), size=2)])
    refused = [
        ("MALFORMED_REQUEST", put(1, X, b"short")),
        ("MALFORMED_REQUEST", put(2, X, os.urandom(16), lease_id=b"short")),
        ("UNSUPPORTED_ELEMENT_TYPE", put(3, X, os.urandom(16), type=tensor(8, element_type=0))),
        ("INVALID_SHAPE", put(4, X, os.urandom(16), type=tensor(-8))),
        ("SIZE_MISMATCH", put(5, X, os.urandom(16), type=tensor(7))),
        ("NOT_ENOUGH_DEVICES", put(6, X, os.urandom(16), mesh={"axes": [{"name": "x", "size": 4096}]})),
        ("UNKNOWN_MESH_AXIS", put(7, X, os.urandom(16), spec=unknown)),
        ("STREAM_REQUIRED", put(8, X, os.urandom(16), mesh=long)),
        ("MALFORMED_REQUEST", put(9, X, os.urandom(16), timeout_seconds=-1.0)),
    ]
    stream.send(*(message for _, message in refused), put(10, X, good), put(11, X, good), put(12, X, handle))
    for number, (reason, _) in enumerate(refused, 1):
        assert stream.refusal(number).partition(":")[0] == reason
    assert stream.refusal(11).startswith("MALFORMED_REQUEST: ")  # of a handle that is in use
    stream.response(10)
    stream.response(12)
    stream.send(put(13, X, good), delete(good, handle))
    assert stream.refusal(13).startswith("MALFORMED_REQUEST: ")


def test_puts_and_reads_need_the_scope_of_arrays_and_are_of_their_principal(server, stream, kept):
    handle = os.urandom(16)
    for principal, reason in (("runner", "SCOPE_MISSING"), ("guest", "ARRAY_LOST")):
        with open_channel(server.address, token=token_of(principal)) as channel:
            other = Stream(channel)
            other.send(put(1, X, handle), read(2, kept))
            assert other.refusal(2).startswith(f"{reason}: ")
            if principal == "runner":
                assert other.refusal(1).startswith("SCOPE_MISSING: a put needs the scope arrays")
            else:
                other.response(1)
                stream.send(read(1, handle))
                assert stream.refusal(1).startswith("ARRAY_LOST: ")
                other.send(delete(handle))
            other.half_close()
            assert other.end() is grpc.StatusCode.OK


def test_a_repeated_put_is_answered_as_the_first_one(server):
    handle = os.urandom(16)
    with opened(server) as first, opened(server) as second:
        first.send(put(1, X, handle, request_id=handle.hex()))
        answer = first.response(1)
        second.send(put(5, X, handle, request_id=handle.hex()), read(6, handle))
        assert second.response(5) == answer
        np.testing.assert_array_equal(second.result(6), X)
        second.send(put(7, -X, handle, request_id=handle.hex()), delete(handle))
        assert second.refusal(7).startswith("REQUEST_ID_REUSED: ")


def test_the_errors_of_puts_are_those_of_the_rpc(client, monkeypatch):
    def failures() -> list[tuple[type, str, str, str]]:
        raised = []
        for arguments in (
            {"mesh": {"x": 4096}},
            {"mesh": {"x": 2}, "spec": ("y",)},
            {"mesh": {"x": 2}, "spec": ("x", "x")},
            {"mesh": {"x": 2}, "spec": (None, "x")},
        ):
            with pytest.raises(sc.ShardcallError) as caught:
                client.put(X, **arguments)
            error = caught.value
            raised.append((type(error), error.reason, error.field, error.message))
        return raised

    by_stream = failures()
    monkeypatch.setattr(remote_arrays_of(client), "_stream_for", lambda nbytes: None)
    assert failures() == by_stream


def test_puts_calls_and_deletions_stay_in_order(only_streamed):
    h = only_streamed.put(X)
    for i in range(20):
        pending = only_streamed.submit("add", h, i)
        other = only_streamed.put(X * i)
        total = pending + other
        only_streamed.delete(h, other)
        h = only_streamed.put(X)
        np.testing.assert_array_equal(total.get(), X + i + X * i)


@pytest.fixture
def kept(client) -> Iterator[bytes]:
    with client.put(X) as array:
        yield bytes.fromhex(array.handle)


def kept_slot(slot: int = 0, of: Any = None, types: Any = TYPES) -> call_stream_pb2.CallStreamItem:
    return prepare(slot, of or call("negative"), types, keep_results=True, lease_id=os.urandom(32))


def test_the_answer_to_a_read_is_the_array_and_nothing_else(stream, kept):
    stream.send(read(7, kept))
    answer = stream.answer(7)
    response = kernel_service_pb2.ExecuteResponse.FromString(answer.response)
    assert {field.name for field, _ in answer.ListFields()} == {"number", "response"}
    assert {field.name for field, _ in response.ListFields()} == {"results", "timing"}
    (result,) = response.results
    assert result.type == tensor(8)
    np.testing.assert_array_equal(np.frombuffer(result.inline.data), X)
    assert response.timing.total_seconds > 0


def test_a_read_waits_for_the_call_before_it_and_not_for_its_answer(stream):
    handle = os.urandom(16)
    stream.send(kept_slot(), item(1, X, result_handles=[handle]), read(2, handle), delete(handle), read(3, handle))
    np.testing.assert_array_equal(stream.result(2), -X)
    assert stream.refusal(3).startswith("ARRAY_LOST: ")
    stream.response(1)


def test_a_read_fails_with_the_call_whose_result_it_reads(stream):
    refused, invalid = os.urandom(16), os.urandom(16)
    base = np.arange(3)
    for first in (0, 10):  # the second time the program is compiled, and launched before the values are refused
        stream.send(
            kept_slot(0, call("negative", {"nn": 1})),
            item(first, X, result_handles=[refused]),
            read(first + 1, refused),
            kept_slot(1, **INVALID),
            item(first + 2, base, -1 - base, slot=1, result_handles=[invalid]),
            read(first + 3, invalid),
        )
        reasons = [stream.refusal(first + i).partition(":")[0] for i in range(4)]
        assert reasons == ["UNKNOWN_PARAMETER"] * 2 + ["INVALID_VALUE"] * 2


def test_reads_without_an_array_or_of_no_timeout_are_refused_alone(stream, kept):
    stream.send(read(1, b""), read(2, b"short"), read(3, os.urandom(16)), read(4, kept, timeout_seconds=math.inf))
    stream.send(*(read(5 + i, kept, timeout_seconds=value) for i, value in enumerate((-1.0, -math.inf, math.nan))))
    for number, says in ((1, ""), (2, ""), *((number, "timeout_seconds is") for number in (5, 6, 7))):
        assert stream.refusal(number).startswith(f"MALFORMED_REQUEST: {says}")
    assert stream.refusal(3).startswith("ARRAY_LOST: ")
    np.testing.assert_array_equal(stream.result(4), X)


def test_an_array_larger_than_a_message_may_hold_is_neither_read_nor_put(stream, client):
    count, there = client.server_info().limits.max_inline_bytes // 8, os.urandom(16)
    stream.send(
        put(1, np.ones(count), there), read(2, there), delete(there), put(3, np.ones(count + 1), os.urandom(16))
    )
    stream.response(1)
    assert stream.result(2).sum() == count
    assert stream.refusal(3).startswith("STREAM_REQUIRED: the array has")
    with client.put(np.ones(count + 1)) as large:
        stream.send(read(4, bytes.fromhex(large.handle)))
        assert stream.refusal(4).startswith("STREAM_REQUIRED: the array has")


def test_a_chain_and_its_read_are_one_round_trip(only_streamed, monkeypatch):
    h = only_streamed.put(X)
    np.testing.assert_array_equal((h + 1).get(), X + 1)
    waited = []
    monkeypatch.setattr(PendingCall, "wait_answered", lambda call, deadline: waited.append(call))
    for i in range(20):
        np.testing.assert_array_equal((h + i).get(), X + i)
        np.testing.assert_array_equal(only_streamed.submit("add", h, i).get(), X + i)
    assert [call for call in waited if not call.is_done] == []
    monkeypatch.undo()

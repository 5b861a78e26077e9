"""CallStream by a client of the contract: frames that a test writes, and what the server makes of them."""

import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, details, mesh, open_channel, spec, tensor, token_of
from end_to_end.processes import stopped, wait_for
from end_to_end.raw_stream import Stream, cancel, delete, item, prepare

import shardcall as sc
from shardcall.v1 import array_pb2, call_stream_pb2, kernel_service_pb2
from shardcall_core.types import arrays

INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
X = np.arange(8.0) ** 2
OMITTED = array_pb2.ArrayType()


def test_calls_of_a_slot_and_their_answers(stream):
    stream.send(prepare(), *(item(number, X + number) for number in range(10)))
    stream.send(prepare(), item(10, X * 2))
    for number in range(10):
        np.testing.assert_array_equal(stream.result(number), np.diff(X))
    np.testing.assert_array_equal(stream.result(10), np.diff(X * 2))


def test_answers_come_as_calls_finish(stream):
    stream.send(prepare(), item(1, X))
    stream.answer(1)
    new = int(time.time() * 1e6) % 10_000 + 500  # a shape whose program is not compiled yet
    stream.send(prepare(1, types=[tensor(new)]), item(2, np.zeros(new), slot=1), item(3, X))
    stream.answer(2)
    stream.answer(3)
    assert stream.order == [1, 3, 2]


WRONG = {
    "kernel": (call("dif"), (8,)),
    "parameter": (call(parameters={"nn": 1}), (8,)),
    "axis": (call(parameters={"axis": 3}), (8,)),
    "shape": (call(), ()),
    "size": (call(), (9,)),
    "strategy": (call(strategy="other"), (8,)),
}


@pytest.mark.parametrize(("wrong", "shape"), WRONG.values(), ids=WRONG)
def test_an_error_is_that_of_execute(stream, stub, wrong, shape):
    data = X[0] if shape == () else X
    stream.send(prepare(of=wrong, types=[tensor(*shape)]), item(1, data))
    answer = stream.answer(1)
    operand = kernel_service_pb2.Operand(type=tensor(*shape), inline={"data": data.tobytes()})
    with pytest.raises(grpc.RpcError) as caught:
        stub.Execute(kernel_service_pb2.ExecuteRequest(call=wrong, operands=[operand]), timeout=60)
    assert answer.status == dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    assert details(caught.value)["ErrorInfo"].reason
    assert answer.timing.total_seconds > 0
    assert not answer.response


def test_calls_that_do_not_fit_their_slot_are_refused_alone(stream):
    stream.send(prepare(), prepare(1, types=[tensor()]), item(1, X, slot=7))
    stream.send(item(2, X, X), item(3), item(4, X[:7]), item(5, X, timeout_seconds=-1.0))
    stream.send(item(6, X, request_id="ä"), item(7, X))
    assert stream.refusal(1).startswith("MALFORMED_REQUEST: slot 7 has no call; send a PrepareCall")
    assert "2 operands came for slot 0, whose call has 1" in stream.refusal(2)
    assert "0 operands came for slot 0" in stream.refusal(3)
    assert stream.refusal(4).startswith("SIZE_MISMATCH")
    assert "timeout_seconds is -1.0" in stream.refusal(5)
    assert "shardcall-request-id" in stream.refusal(6)
    np.testing.assert_array_equal(stream.result(7), np.diff(X))


def test_an_invalid_prepared_call_fails_no_other_calls(stream):
    wrong = {
        1: prepare(1, types=[tensor(8)] * 65),
        2: prepare(2, types=[tensor(*[1] * 60)]),
        3: prepare(3, of=call(parameters={"a" * 1_200_000: 1})),
        4: prepare(4, of=call("k" * 100_000)),
    }
    stream.send(prepare(), *wrong.values())
    for slot in wrong:
        stream.send(item(slot, X, slot=slot), item(10 + slot, X, slot=slot))
    stream.send(item(20, X))
    for slot, says in ((1, "65"), (2, "INVALID_SHAPE"), (3, "a prepared call has 120"), (4, "KERNEL_NOT_FOUND")):
        assert says in stream.refusal(slot)
        assert says in stream.refusal(10 + slot)
    np.testing.assert_array_equal(stream.result(20), np.diff(X))
    stream.send(prepare(1), item(21, X, slot=1))  # the slot is assigned again
    np.testing.assert_array_equal(stream.result(21), np.diff(X))


def test_refused_calls_can_be_cancelled(stream):
    stream.send(item(1, X), cancel(1, 2))
    assert stream.refusal(1).startswith("MALFORMED_REQUEST: slot 0")
    stream.send(prepare(), item(2, X))
    np.testing.assert_array_equal(stream.result(2), np.diff(X))


FRAMES = {
    "slot 256 is not below 256": [prepare(256)],
    "number 1 is that of a call that is not answered": [prepare(), item(1, X), item(1, X)],
    "handle": [delete(b"short")],
    "4097 items; send at most 4096": [cancel()] * 4097,
    "a frame is no message of this method": b"\xff\xff\xff",
}


@pytest.mark.parametrize("says", FRAMES)
def test_a_frame_that_breaks_the_contract_ends_the_stream(stream, says):
    frame = FRAMES[says]
    if isinstance(frame, bytes):
        stream.send_bytes(frame)
    else:
        stream.send(*frame)
    error = stream.error()
    assert error.code() is INVALID
    assert details(error)["ErrorInfo"].reason == "MALFORMED_REQUEST"
    assert says in error.details()


def test_a_half_closed_stream_ends_after_its_answers(stream):
    stream.send(prepare(), *(item(number, X) for number in range(20)))
    stream.half_close()
    assert stream.end() is grpc.StatusCode.OK
    assert sorted(stream.order) == list(range(20))


def test_calls_beyond_the_window_are_refused(narrow, narrow_server):
    with stopped(narrow_server):
        narrow.send(*(item(number, X) for number in range(5)))
        assert narrow.refusal(4).startswith("QUOTA_EXCEEDED: 5 calls of this stream would be unanswered, and 4 may be")
    for number in range(4):
        np.testing.assert_array_equal(narrow.result(number), np.diff(X))
    narrow.send(item(5, X))
    narrow.result(5)


def test_too_many_refused_calls_end_the_stream(narrow, narrow_server):
    with stopped(narrow_server):
        # The refusals of a few calls could be sent between two of them: only those that wait to be sent count.
        narrow.send(*(item(number, X) for number in range(4000)))
        error = narrow.error()
    assert error.code() is EXHAUSTED
    assert details(error)["ErrorInfo"].metadata["limit"] == "max_streamed_calls"


def test_a_cancelled_call_is_answered_at_once_and_the_others_go_on(narrow, narrow_server):
    with stopped(narrow_server):
        narrow.send(item(1, X), item(2, X), cancel(1, 99))
        assert narrow.refusal(1).startswith("CANCELLED")
    np.testing.assert_array_equal(narrow.result(2), np.diff(X))


def test_every_call_has_a_deadline(narrow, narrow_server):
    with stopped(narrow_server):
        narrow.send(item(1, X), item(2, X, timeout_seconds=0.6), item(3, X, timeout_seconds=0.2))
        for number, limit in ((3, 0.2), (2, 0.6)):
            assert narrow.refusal(number).startswith(f"DEADLINE_EXCEEDED: the call's {limit} s passed")
    np.testing.assert_array_equal(narrow.result(1), np.diff(X))
    assert narrow.order[-1] == 1


def test_there_is_a_limit_of_open_streams(narrow_server):
    with ExitStack() as stack:
        channel = stack.enter_context(open_channel(narrow_server.address))
        guest = stack.enter_context(open_channel(narrow_server.address, token=token_of("guest")))

        def working(on: grpc.Channel) -> Stream:
            stream = Stream(on)
            stack.callback(stream.half_close)
            stream.send(prepare(), item(1, X))
            stream.result(1)
            return stream

        def opens() -> bool:  # earlier tests' streams may still be ending
            try:
                working(channel)
            except grpc.RpcError as error:
                refused.append(error)
                return False
            return True

        refused: list[grpc.RpcError] = []
        for _ in range(3):
            wait_for(opens)
        refused.clear()
        assert not opens()
        assert details(refused[0])["ErrorInfo"].reason == "QUOTA_EXCEEDED"
        assert details(refused[0])["ErrorInfo"].metadata["limit"] == "max_call_streams"
        working(guest)
        with pytest.raises(grpc.RpcError) as caught:
            working(guest)
        assert caught.value.code() is EXHAUSTED
        assert details(caught.value)["ErrorInfo"].reason == "SERVER_BUSY"


ADD = call("add")


@pytest.fixture
def chain(stream, client) -> Iterator[bytes]:
    """A handle of an array of 4; slot 1 of the stream adds a number and keeps the result."""
    stream.send(prepare(1, of=ADD, types=[tensor(4), tensor()], keep_results=True, lease_id=os.urandom(32)))
    with client.put(np.zeros(4), mesh=sc.Mesh(x=1)) as kept:
        yield bytes.fromhex(kept.handle)


def added(number: int, handle: bytes, *results: bytes, slot: int = 1, **fields: Any) -> call_stream_pb2.CallStreamItem:
    fields = {"request_id": os.urandom(16).hex(), **fields}
    return item(number, handle, np.float64(1), slot=slot, result_handles=results, **fields)


def test_calls_use_the_results_of_calls_in_the_same_frame(stream, chain, client):
    handles = [os.urandom(16) for _ in range(50)]
    items, last = [], chain
    for number, handle in enumerate(handles):
        items += [added(number, last, handle), *([delete(last)] if number else [])]
        last = handle
    stream.send(*items)
    for number, handle in enumerate(handles):
        (result,) = stream.response(number).results
        assert result.resident.handle == handle
    np.testing.assert_array_equal(client.get(last.hex()), np.full(4, 50.0))
    stream.send(delete(last))


def test_an_operand_of_another_type_than_the_slot_says_is_refused(stream, chain):
    stream.send(prepare(2, of=ADD, types=[tensor(5), tensor()]), item(1, chain, np.float64(1), slot=2))
    assert stream.refusal(1).startswith("INVALID_OPERAND: operand 0 is declared as")


def test_a_repeated_request_gets_the_same_answer(stream, chain):
    handle, request_id = os.urandom(16), os.urandom(16).hex()
    stream.send(added(1, chain, handle, request_id=request_id))
    first = stream.response(1)
    stream.send(added(2, chain, handle, request_id=request_id))
    assert stream.response(2).results == first.results
    stream.send(item(3, chain, np.float64(2), slot=1, result_handles=[os.urandom(16)], request_id=request_id))
    assert stream.refusal(3).startswith("REQUEST_ID_REUSED")
    stream.send(delete(handle))


def test_what_depends_on_values_that_were_refused_fails_too_and_leaves_nothing(client, stream):
    """All three calls are launched before the first one is known to fail."""
    base = np.arange(3)
    array_type = arrays.to_proto(sc.Array(base.shape, base.dtype))
    handles = [os.urandom(16) for _ in range(3)]
    keep = {"keep_results": True, "lease_id": os.urandom(32)}
    for first in (0, 10):  # the second time all programs are compiled
        stream.send(
            prepare(0, call("power"), [array_type, array_type], **keep),
            prepare(1, call("negative"), [array_type], **keep),
            item(first, base, -1 - base, result_handles=handles[:1]),
            item(first + 1, handles[0], slot=1, result_handles=handles[1:2]),
            item(first + 2, handles[1], slot=1, result_handles=handles[2:]),
        )
        assert [stream.refusal(first + i).partition(":")[0] for i in range(3)] == ["INVALID_VALUE"] * 3
    assert not {handle.hex() for handle in handles} & {array.handle for array in client.list(of_all_clients=True)}


def test_the_first_frame_is_empty_and_comes_before_any_call(stream):
    assert call_stream_pb2.CallStreamResponse.FromString(next(stream.rpc)) == call_stream_pb2.CallStreamResponse()


def test_omitted_operands_have_neither_type_nor_source(stream):
    zero = np.float64(0)
    stream.send(prepare(types=[tensor(8), OMITTED, tensor()]), item(1, X, None, zero))
    np.testing.assert_array_equal(stream.result(1), np.diff(X, append=0.0))
    stream.send(item(2, X, zero, zero), item(3, X, None, None), item(4, X, b"", zero))
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
    count = 2 * math.isqrt(client.server_info().limits.max_inline_bytes // 8)
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

"""Calls of the call stream, and streams that break, are refused, drain and are closed."""

import asyncio
import gc
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from client.conftest import cancel, with_call_streams
from client.stream_server import PLAN_SLOTS, Call, in_threads, one_by_one, threads_named, wait_for
from client_parts import stream_of

import shardcall
from shardcall import aio
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.transfer.stream_request import SendWaiter
from shardcall.v1 import kernel_pb2

pytestmark = pytest.mark.usefixtures("quick_collections")

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


# Calls


@pytest.fixture
def client(stream_client):
    return stream_client


def test_small_calls_share_one_stream_and_name_their_slots(client, server, streams):
    for i in range(20):
        np.testing.assert_array_equal(client.call("echo", np.arange(4.0) + i).array, np.arange(4.0) + i)
    (stream,) = streams.streams
    assert not server.requests
    assert stream.kinds == ["prepare", *["call"] * 20]
    assert len({call.item.number for call in streams.calls}) == len({c.item.request_id for c in streams.calls}) == 20
    assert "shardcall-timeout" not in stream.metadata


def test_large_calls_do_not_take_the_stream(client, server, streams):
    client.call("echo", np.zeros(2**15 + 1))
    assert (len(server.requests), streams.streams) == (1, [])


def test_the_plan_of_a_call_has_its_transfers(client, streams):
    moved = kernel_pb2.Transfer(mesh={"axes": [{"name": "x", "size": 1}], "device_ids": [1]}, received_bytes=8)
    streams.on_call = lambda call: call.answer(transfers=[moved])
    assert [transfer.received_bytes for transfer in client.call("echo", 1.0).plan.transfers] == [8]
    streams.on_call = Call.answer
    assert not client.call("echo", 1.0).plan.transfers


def test_more_prepared_calls_than_slots_reuse_them_and_keep_a_slot_used_recently(client, streams):
    for i in [*range(20)] * 2:
        client.call("echo", 1.0)
        assert client.call("echo", np.arange(i % 3), axis=i).array.shape == (i % 3,)
        assert streams.calls[-1].prepared.call.parameters["axis"].int_value == i
    (stream,) = streams.streams
    assert set(stream.prepared) == set(range(8))
    prepares = [item.prepare for item in stream.items if item.HasField("prepare")]
    assert sum(not prepare.call.parameters for prepare in prepares) == 1


def test_more_plans_than_slots_use_them_again(client, streams):
    for i in range(PLAN_SLOTS + 10):
        assert client.call(f"echo{i}", 1.0).plan.kernel == f"echo{i}"


def test_an_error_has_everything_that_a_unary_one_has(client, server, streams, abort):
    status = (grpc.StatusCode.INVALID_ARGUMENT, "AXIS_OUT_OF_RANGE", "axis is 3")
    streams.on_call = lambda call: call.fail(*status, at="operand 0", axis="3", ndim="1")
    server.execute = lambda request, context: abort(context, *status, at="operand 0", axis="3", ndim="1")
    caught = []
    for call_stream in (True, False):
        with shardcall.connect(server.address, call_stream=call_stream) as one:
            with pytest.raises(shardcall.AxisError) as raised:
                one.call("diff", np.arange(4.0), axis=0)
            caught.append(raised.value)
    streamed, unary = caught
    assert len(streams.calls) == len(server.requests) == 1
    assert vars(streamed) | {"timing": None, "request_id": ""} == vars(unary) | {"timing": None, "request_id": ""}
    assert streamed.timing.execute == unary.timing.execute == 0.5
    assert streamed.timing.round_trip > 0
    assert (streamed.request_id, streamed.field) == (streams.calls[0].item.request_id, "x")


@pytest.mark.parametrize(
    ("limit", "value", "size"), [("max_streamed_calls", 2, 1), ("max_streamed_bytes", 20_000, 1000)]
)
def test_calls_beyond_the_window_wait(server, info, streams, limit, value, size):
    setattr(info.limits, limit, value)
    streams.on_call = lambda call: None
    with shardcall.connect(server.address) as client, ThreadPoolExecutor(4) as pool:
        calling = [pool.submit(client.call, "echo", np.zeros(size)) for _ in range(4)]
        wait_for(lambda: len(streams.calls) == 2)
        time.sleep(0.1)
        assert len(streams.calls) == 2
        streams.on_call = Call.answer
        for call in list(streams.calls):
            call.answer()
        for one in calling:
            one.result(20)
        assert len(streams.calls) == 4
        client.call("echo", np.zeros(2501))
    assert len(server.requests) == (limit == "max_streamed_bytes"), "what is larger than the window is no item"


def test_a_call_without_a_slot_in_the_window_ends_at_its_deadline(server, info, streams):
    info.limits.max_streamed_calls = 1
    streams.on_call = lambda call: None
    with shardcall.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        calling = pool.submit(client.call, "echo", 1.0)
        wait_for(lambda: streams.calls)
        with pytest.raises(shardcall.DeadlineExceededError, match=r"0\.2 s passed while it waited: 1 calls"):
            client.call("echo", 1.0, timeout=0.2)
        streams.calls[0].answer()
        calling.result(20)
        streams.on_call = Call.answer
        client.call("echo", 1.0)


def test_a_call_that_is_not_answered_ends_at_its_deadline(client, server, streams):
    streams.on_call = lambda call: None
    began = time.monotonic()
    with pytest.raises(shardcall.DeadlineExceededError) as streamed:
        client.call("echo", 1.0, timeout=0.3)
    assert 0.3 < time.monotonic() - began < 3
    assert str(streamed.value) == f"no answer from {server.address} within 0.3 s; raise timeout="
    assert streamed.value.status is grpc.StatusCode.DEADLINE_EXCEEDED
    assert streams.streams[0].cancelled.get(timeout=10) == streams.calls[0].item.number
    assert 0.2 < streams.calls[0].item.timeout_seconds <= 0.3
    streams.calls[0].answer()  # too late: ignored
    streams.on_call = Call.answer
    assert client.call("echo", 2.0).array == 2.0
    assert len(streams.streams) == 1


def test_a_cancelled_task_cancels_its_call(server, streams):
    streams.on_call = lambda call: None

    async def call():
        async with aio.connect(server.address) as client:
            task = asyncio.create_task(client.call("echo", 1.0))
            await asyncio.to_thread(wait_for, lambda: streams.calls)
            await cancel(task)
            streams.on_call = Call.answer
            assert (await client.call("echo", 2.0)).array == 2.0

    asyncio.run(call())
    (stream,) = streams.streams
    assert stream.cancelled.get(timeout=10) == streams.calls[0].item.number


def test_ctrl_c_cancels_its_call_only(client, streams):
    def interrupt(call):
        if call.kernel == "slow":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        else:
            call.answer()

    streams.on_call = interrupt
    for i in range(5):
        with pytest.raises(KeyboardInterrupt):
            client.call("slow", 1.0)
        assert client.call("echo", float(i)).array == i
    (stream,) = streams.streams
    assert stream.cancelled.get(timeout=10) == streams.calls[0].item.number


def test_deletions_go_in_order_with_calls_and_again_after_a_break(client, streams):
    stream = stream_of(client)
    client.call("echo", 1.0)
    stream.delete([b"a" * 16])
    client.call("echo", 1.0)
    assert streams.streams[0].kinds == ["prepare", "call", "delete", "call"]
    stream.delete([b"b" * 16])
    assert streams.streams[0].deleted.get(timeout=10) == b"a" * 16
    assert streams.streams[0].deleted.get(timeout=10) == b"b" * 16
    streams.streams[0].end(UNAVAILABLE)
    wait_for(lambda: not stream_of(client)._connections)
    client.call("echo", 1.0)
    assert streams.streams[1].kinds == ["delete", "prepare", "call"]
    stream.delete([bytes([i % 256, i // 256] * 8) for i in range(2000)])
    client.close()
    assert streams.streams[1].deleted.qsize() == 2001


def test_done_callbacks_run_once(client, streams):
    held, done = [], []
    streams.on_call = held.append
    call = stream_of(client).send(kernel_pb2.KernelCall(kernel="echo"), [np.arange(3.0)], Deadline(30))
    call.add_done_callback(done.append)
    assert not call.done
    wait_for(lambda: held)
    held[0].answer()
    for _ in range(2):
        np.testing.assert_array_equal(call.result(Deadline(30)).results[0], np.arange(3.0))
    wait_for(lambda: done)
    call.add_done_callback(done.append)
    assert done == [call, call]
    assert call.done
    call.cancel()
    call.result(Deadline(30))


# Faults; what all transports repeat is in test_retries.py


def test_a_broken_stream_is_opened_again_and_its_calls_are_sent_in_order(client, streams):
    def end_once(call):
        if len(streams.streams) == 1:
            if len(streams.calls) == 8:
                call.stream.end(UNAVAILABLE)
        else:
            call.answer()

    streams.on_call = end_once
    assert in_threads(8, lambda i: float(client.call("echo", float(i)).array)) == [*map(float, range(8))]
    first, second = streams.calls[:8], streams.calls[8:]
    assert [call.item.request_id for call in first] == [call.item.request_id for call in second]
    assert len(streams.streams) == 2


def test_a_stream_that_ends_well_with_calls_unanswered_is_broken(client, streams):
    streams.on_call = one_by_one(lambda call: call.stream.end(), Call.answer)
    assert client.call("echo", 1.0).array == 1.0


def test_an_error_of_the_stream_is_the_error_of_its_calls(client, streams):
    streams.on_call = lambda call: call.stream.end(grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST", "a frame")
    with pytest.raises(shardcall.InvalidRequestError, match="a frame"):
        client.call("echo", 1.0)


def test_a_refused_stream_is_tried_again_later(client, server, streams, monkeypatch):
    monkeypatch.setattr("shardcall._src.transfer.call_stream._REFUSED_S", 0.05)
    streams.on_opened = lambda stream: stream.end(EXHAUSTED, "SERVER_BUSY")
    client.call("echo", 1.0)
    streams.on_opened = lambda stream: None
    time.sleep(0.1)
    client.call("echo", 1.0)
    assert (len(server.requests), len(streams.streams)) == (1, 2)


def test_a_draining_stream_is_left_after_its_answers(client, streams):
    held = []
    streams.on_call = held.append
    with ThreadPoolExecutor(1) as pool:
        calling = pool.submit(client.call, "echo", 1.0)
        wait_for(lambda: held)
        streams.on_call = Call.answer
        streams.streams[0].drain()
        wait_for(lambda: stream_of(client)._current.draining)
        assert (client.call("echo", 2.0).array, len(streams.streams)) == (2.0, 2)
        assert not streams.streams[0].half_closed.is_set()
        held[0].answer()
        assert calling.result(10).array == 1.0
    assert streams.streams[0].half_closed.wait(10)
    assert (client.call("echo", 3.0).array, len(streams.streams)) == (3.0, 2)


def test_a_server_that_shuts_down_refuses_streams_and_the_next_one_accepts_them(client, streams):
    def refuse_twice(stream):
        if len(streams.streams) < 3:
            stream.end(UNAVAILABLE, "SERVER_DRAINING")

    streams.on_opened = refuse_twice
    assert (client.call("echo", 2.0).array, len(streams.streams)) == (2.0, 3)


def test_a_server_that_shuts_down_is_asked_for_an_array_by_another_method(memory, abort):
    """Such a server opens no streams, and lets clients read what it has computed for them."""
    refused, describe = [], memory.server.info

    def refuse(requests, context):
        refused.append(requests)
        abort(context, UNAVAILABLE, "SERVER_DRAINING")
        yield

    memory.server.info = lambda *call: with_call_streams(describe(*call))
    memory.server.call_stream = refuse
    with (
        shardcall.connect(memory.server.address, call_stream=False) as other,
        shardcall.connect(memory.server.address) as client,
    ):
        array = client.describe(other.put(np.arange(4.0)).handle)
        np.testing.assert_array_equal(array.get(), np.arange(4.0))
    assert refused
    assert [type(request).__name__ for request in memory.calls].count("GetArrayRequest") == 1


def test_close_cancels_calls_and_refuses_others(server, streams):
    streams.on_call = lambda call: None
    before = threads_named("shardcall-call-stream")
    client = shardcall.connect(server.address)
    with ThreadPoolExecutor(3) as pool:
        calling = [pool.submit(client.call, "echo", 1.0) for _ in range(3)]
        wait_for(lambda: len(streams.calls) == 3)
        client.close()
        assert [type(one.exception(10)) for one in calling] == [shardcall.CallCancelledError] * 3
    with pytest.raises(shardcall.ClientClosedError):
        client.call("echo", 1.0)
    wait_for(lambda: threads_named("shardcall-call-stream") <= before)


def test_a_client_that_is_dropped_ends_its_stream(server, streams):
    before = threads_named("shardcall-call-stream")
    client = shardcall.connect(server.address)
    client.call("echo", 1.0)
    del client
    gc.collect()
    assert streams.streams[0].half_closed.wait(10)
    wait_for(lambda: threads_named("shardcall-call-stream") <= before)


def test_a_garbled_frame_fails_the_calls(client, streams):
    garbled = kernel_pb2.KernelCall(kernel="no frame")
    streams.on_call = one_by_one(lambda call: call.stream.send_frame(garbled), Call.answer)
    with pytest.raises(shardcall.InternalServerError):
        client.call("echo", 1.0)
    assert client.call("echo", 1.0).array == 1.0


@pytest.mark.parametrize("refused", ["stream", "item"])
def test_a_stream_whose_token_was_removed_is_replaced_by_one_with_another(server, streams, sessions, refused):
    def answer(call):
        if call.stream.metadata["authorization"] != "Bearer session-token-0000":
            call.answer()
        else:
            (call.stream.end if refused == "stream" else call.fail)(UNAUTHENTICATED, "TOKEN_REQUIRED")

    streams.on_call = answer
    with shardcall.connect(server.address) as client:
        count = 4 if refused == "stream" else 1
        assert in_threads(count, lambda i: float(client.call("echo", float(i)).array)) == [*map(float, range(count))]
        assert client.call("echo", 1.0).array == 1.0
        first, second = (stream.metadata["authorization"][-4:] for stream in streams.streams)
        assert first == "0000" != second
        if refused == "item":  # before the channel is closed, which may end it otherwise
            assert streams.streams[0].half_closed.wait(60)


def test_a_removed_token_without_another_fails_the_calls_with_advice(server, streams):
    streams.on_call = lambda call: call.stream.end(UNAUTHENTICATED, "TOKEN_REQUIRED")
    advice = pytest.raises(shardcall.AccessDeniedError, match="this client showed the token that it was given")
    with shardcall.connect(server.address, token="t" * 20) as client, advice:
        client.call("echo", 1.0)
    assert len(streams.streams) == 1


def send(stream, value):
    return stream.send(kernel_pb2.KernelCall(kernel="echo"), [np.float64(value)], Deadline(30))


def test_calls_and_deletions_are_sent_again_in_order(client, streams):
    streams.on_call = lambda call: call.answer() if len(streams.streams) > 1 else None
    stream = stream_of(client)
    first = send(stream, 1)
    stream.delete([b"a" * 16])
    second = send(stream, 2)
    stream.delete([b"b" * 16])
    wait_for(lambda: streams.streams and len(streams.streams[0].items) == 5)
    streams.streams[0].end(UNAVAILABLE)
    assert [call.result(Deadline(30)).results[0] for call in (first, second)] == [1.0, 2.0]
    wait_for(lambda: len(streams.streams[1].items) == 5)
    assert streams.streams[1].kinds == ["prepare", "call", "delete", "call", "delete"]


def test_deletions_of_a_broken_stream_are_sent_by_the_one_that_replaces_it(client, streams):
    held = []
    streams.on_call = held.append
    stream = stream_of(client)
    first = send(stream, 1)
    stream.delete([b"a" * 16])
    wait_for(lambda: held)
    streams.streams[0].drain()
    wait_for(lambda: stream._current.draining)
    streams.on_call = Call.answer
    client.call("echo", 2.0)
    first.cancel()
    streams.streams[0].end(UNAVAILABLE)
    assert streams.streams[1].deleted.get(timeout=10) == b"a" * 16


def test_an_interrupted_call_at_the_head_of_those_that_wait_is_passed(client, streams):
    stream, waiter = stream_of(client), SendWaiter()
    stream._waiting.append(waiter)
    waiter.abandoned = True
    assert client.call("echo", 1.0, timeout=5).array == 1.0
    assert not stream._waiting


def test_a_forked_child_calls_nobody_back(client, streams):
    client.call("echo", 1.0)  # this process goes on reading the stream, and has read its first frame
    before = len(streams.calls)
    streams.on_call = lambda call: None
    stream, called = stream_of(client), []
    call = send(stream, 1)
    call.add_done_callback(called.append)
    wait_for(lambda: len(streams.calls) > before)
    connections = stream._connections
    stream.begin_anew()
    with pytest.raises(shardcall.CallCancelledError, match="forked"):
        call.result(Deadline(30))
    assert not called
    for connection in connections:
        connection.outgoing.put(None)
    assert streams.streams[0].half_closed.wait(60)

"""Call streams that break, are refused, drain and are closed."""

import gc
import random
import threading
import time

import grpc
import numpy as np
import pytest
from client.stream_server import Call, in_threads, one_by_one, wait_for
from client_parts import stream_of

import shardcall
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.transfer.stream_request import SendWaiter
from shardcall.v1 import kernel_pb2

pytestmark = pytest.mark.usefixtures("quick_collections")

UNAVAILABLE, EXHAUSTED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
def client(stream_client):
    return stream_client


def test_a_broken_stream_is_opened_again_and_its_calls_are_sent_in_order(client, streams):
    def end_once(call):
        if len(streams.streams) == 1:
            if len(streams.calls) == 8:
                call.stream.end(UNAVAILABLE)
        else:
            call.answer()

    streams.on_call = end_once
    results = in_threads(8, lambda i: float(client.call("echo", float(i)).array))
    assert results == [*map(float, range(8))]
    first, second = streams.calls[:8], streams.calls[8:]
    assert [call.item.request_id for call in first] == [call.item.request_id for call in second]
    assert len(streams.streams) == 2


def test_a_broken_stream_fails_its_calls_without_retries(server, streams):
    streams.on_call = lambda call: call.stream.end(UNAVAILABLE)
    with shardcall.connect(server.address, retries=False) as client:
        with pytest.raises(shardcall.ServerUnavailableError, match="went away or cannot be reached") as caught:
            client.call("echo", 1.0)
        assert caught.value.request_id == streams.calls[0].item.request_id
        streams.on_call = Call.answer
        assert client.call("echo", 1.0).array == 1.0
    assert len(streams.streams) == 2


def test_a_stream_that_breaks_again_and_again_is_abandoned(client, streams, monkeypatch):
    monkeypatch.setattr(random, "uniform", lambda *_: 0.02)  # a fiftieth of the waits
    streams.on_call = lambda call: call.stream.end(UNAVAILABLE)
    with pytest.raises(shardcall.ServerUnavailableError):
        client.call("echo", 1.0)
    assert len(streams.streams) == 5


def test_a_call_without_time_for_a_retry_fails_at_once(client, streams):
    streams.on_call = lambda call: call.stream.end(UNAVAILABLE)
    began = time.monotonic()
    with pytest.raises(shardcall.ServerUnavailableError):
        client.call("echo", 1.0, timeout=0.05)
    assert time.monotonic() - began < 1


def test_a_stream_that_ends_well_with_calls_unanswered_is_broken(client, streams):
    streams.on_call = one_by_one(lambda call: call.stream.end(), Call.answer)
    assert client.call("echo", 1.0).array == 1.0


def test_an_error_of_the_stream_is_the_error_of_its_calls(client, streams):
    streams.on_call = lambda call: call.stream.end(grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST", "a frame")
    with pytest.raises(shardcall.InvalidRequestError, match="a frame"):
        client.call("echo", 1.0)


@pytest.mark.parametrize(
    ("status", "reason"), [(EXHAUSTED, "SERVER_BUSY"), (EXHAUSTED, "QUOTA_EXCEEDED"), (UNAVAILABLE, "MESH_NOT_READY")]
)
def test_an_answer_that_asks_for_a_retry_is_followed(client, streams, status, reason):
    streams.on_call = one_by_one(*[lambda call: call.fail(status, reason, retry_after_s=0.01)] * 2, Call.answer)
    assert client.call("echo", 1.0).array == 1.0
    assert len(streams.calls) == 3
    assert len({call.item.request_id for call in streams.calls}) == 1
    assert len({call.item.number for call in streams.calls}) == 3


def test_an_answer_is_requested_no_more_than_four_more_times(client, streams):
    streams.on_call = lambda call: call.fail(EXHAUSTED, "SERVER_BUSY", retry_after_s=0.01)
    with pytest.raises(shardcall.ResourceExhaustedError):
        client.call("echo", 1.0)
    assert len(streams.calls) == 5


def test_a_call_that_the_mesh_restarted_under_is_sent_once_more(client, streams):
    streams.on_call = lambda call: call.fail(UNAVAILABLE, "MESH_RESTARTED")
    with pytest.raises(shardcall.MeshRestartedError):
        client.call("echo", 1.0)
    assert len(streams.calls) == 2


def test_results_too_large_for_an_item_come_by_a_separate_stream(client, server, streams):
    streams.on_call = lambda call: call.fail(grpc.StatusCode.FAILED_PRECONDITION, "STREAM_REQUIRED")
    np.testing.assert_array_equal(client.call("echo", np.arange(9.0)).array, np.arange(9.0))
    assert server.requests == ["stream"]


@pytest.mark.parametrize(
    ("code", "reason"), [(EXHAUSTED, "SERVER_BUSY"), (EXHAUSTED, "QUOTA_EXCEEDED"), (grpc.StatusCode.UNIMPLEMENTED, "")]
)
def test_a_refused_stream_is_replaced_by_unary_calls(client, server, streams, code, reason):
    streams.on_opened = lambda stream: stream.end(code, reason, retry_after_s=0.01)
    for i in range(3):
        assert client.call("echo", float(i)).array == i
    assert len(server.requests) == 3
    assert len(streams.streams) == 1


def test_a_refused_stream_is_tried_again_later(client, server, streams, monkeypatch):
    monkeypatch.setattr("shardcall._src.transfer.call_stream._REFUSED_S", 0.05)
    streams.on_opened = lambda stream: stream.end(EXHAUSTED, "SERVER_BUSY")
    client.call("echo", 1.0)
    streams.on_opened = lambda stream: None
    time.sleep(0.1)
    client.call("echo", 1.0)
    assert len(server.requests) == 1
    assert len(streams.streams) == 2


def test_a_draining_stream_is_left_after_its_answers(client, streams):
    held = []
    streams.on_call = held.append
    calling = threading.Thread(target=in_threads, args=(1, lambda i: client.call("echo", 1.0)))
    calling.start()
    wait_for(lambda: held)
    streams.on_call = Call.answer
    streams.streams[0].drain()
    wait_for(lambda: stream_of(client)._current.draining)
    assert client.call("echo", 2.0).array == 2.0
    assert len(streams.streams) == 2
    assert not streams.streams[0].half_closed.is_set()
    held[0].answer()
    calling.join(10)
    assert streams.streams[0].half_closed.wait(10)
    assert client.call("echo", 3.0).array == 3.0
    assert len(streams.streams) == 2


def test_a_server_that_shuts_down_refuses_streams_and_the_next_one_accepts_them(client, streams):
    def refuse_twice(stream):
        if len(streams.streams) < 3:
            stream.end(UNAVAILABLE, "SERVER_DRAINING")

    streams.on_opened = refuse_twice
    assert client.call("echo", 2.0).array == 2.0
    assert len(streams.streams) == 3


def stream_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "shardcall-call-stream"}


def test_close_cancels_calls_and_refuses_others(server, streams):
    streams.on_call = lambda call: None
    before = stream_threads()
    client = shardcall.connect(server.address)
    errors = []
    calling = threading.Thread(target=lambda: errors.extend(in_threads(3, lambda i: client.call("echo", 1.0))))
    calling.start()
    wait_for(lambda: len(streams.calls) == 3)
    client.close()
    calling.join(10)
    assert [type(error) for error in errors] == [shardcall.CallCancelledError] * 3
    with pytest.raises(shardcall.ClientClosedError):
        client.call("echo", 1.0)
    wait_for(lambda: stream_threads() <= before)


def test_a_client_that_is_dropped_ends_its_stream(server, streams):
    before = stream_threads()
    client = shardcall.connect(server.address)
    client.call("echo", 1.0)
    del client
    gc.collect()
    assert streams.streams[0].half_closed.wait(10)
    wait_for(lambda: stream_threads() <= before)


def test_a_garbled_frame_fails_the_calls(client, streams):
    garbled = kernel_pb2.KernelCall(kernel="no frame")
    streams.on_call = one_by_one(lambda call: call.stream.send_frame(garbled), Call.answer)
    with pytest.raises(shardcall.InternalServerError):
        client.call("echo", 1.0)
    assert client.call("echo", 1.0).array == 1.0


def test_a_stream_whose_token_was_removed_is_opened_with_another(server, streams, sessions):
    streams.on_call = lambda call: (
        call.stream.end(grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")
        if call.stream.metadata["authorization"] == "Bearer session-token-0000"
        else call.answer()
    )
    with shardcall.connect(server.address) as client:
        assert in_threads(4, lambda i: float(client.call("echo", float(i)).array)) == [0.0, 1.0, 2.0, 3.0]
        assert [s.metadata["authorization"][-4:] for s in streams.streams] == ["0000", "0001"]


def test_an_item_whose_token_was_removed_is_sent_by_a_stream_with_another(server, streams, sessions):
    streams.on_call = lambda call: (
        call.fail(grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED") if len(streams.streams) == 1 else call.answer()
    )
    with shardcall.connect(server.address) as client:
        assert client.call("echo", 1.0).array == 1.0
        assert client.call("echo", 1.0).array == 1.0
        assert len(streams.streams) == 2
        assert streams.streams[0].half_closed.wait(60)  # before the channel is closed, which may end it otherwise


def test_a_removed_token_without_another_fails_the_calls_with_advice(server, streams):
    streams.on_call = lambda call: call.stream.end(grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")
    advice = pytest.raises(shardcall.AccessDeniedError, match="this client showed the token that it was given")
    with shardcall.connect(server.address, token="t" * 20) as client, advice:
        client.call("echo", 1.0)
    assert len(streams.streams) == 1


def test_calls_and_deletions_are_sent_again_in_order(client, streams):
    streams.on_call = lambda call: call.answer() if len(streams.streams) > 1 else None
    stream = stream_of(client)
    first = stream.send(kernel_pb2.KernelCall(kernel="echo"), [np.float64(1)], Deadline(30))
    stream.delete([b"a" * 16])
    second = stream.send(kernel_pb2.KernelCall(kernel="echo"), [np.float64(2)], Deadline(30))
    stream.delete([b"b" * 16])
    wait_for(lambda: streams.streams and len(streams.streams[0].items) == 5)
    streams.streams[0].end(UNAVAILABLE)
    assert [call.result(Deadline(30)).results[0] for call in (first, second)] == [1.0, 2.0]
    wait_for(lambda: len(streams.streams[1].items) == 5)
    fields = [item.WhichOneof("item") for item in streams.streams[1].items]
    assert fields == ["prepare", "call", "delete", "call", "delete"]


def test_deletions_of_a_broken_stream_are_sent_by_the_one_that_replaces_it(client, streams):
    held = []
    streams.on_call = held.append
    stream = stream_of(client)
    first = stream.send(kernel_pb2.KernelCall(kernel="echo"), [np.float64(1)], Deadline(30))
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
    assert (
        client.call("echo", 1.0).array == 1.0
    )  # this process goes on reading the stream, and has read its first frame
    before = len(streams.calls)
    streams.on_call = lambda call: None
    stream, called = stream_of(client), []
    call = stream.send(kernel_pb2.KernelCall(kernel="echo"), [np.float64(1)], Deadline(30))
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

"""Reads of arrays by call streams: retries, refusals, errors, threads that stop waiting."""

import threading
from contextlib import nullcontext

import grpc
import numpy as np
import pytest
from client.conftest import with_call_streams
from client.stream_server import Call, StreamServer, one_by_one, wait_for

import shardcall
from shardcall._src.rpc.cancellation import Cancellation
from shardcall.v1 import array_pb2

X = np.arange(4.0)
TYPE = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[4])
LOST, EXHAUSTED = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED
UNAVAILABLE, INVALID = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT


def send(read: Call) -> None:
    read.send(TYPE, X.tobytes())


def refuse(read: Call) -> None:
    read.fail(EXHAUSTED, "SERVER_BUSY", retry_after_s=0.001)


@pytest.fixture
def client(stream_client, streams):
    streams.on_call = Call.keep
    streams.on_read = send
    return stream_client


@pytest.fixture
def there(client):
    """An array whose call is answered."""
    array = client.submit("negative", X)
    assert array.spec is not None
    return array


@pytest.fixture
def pending(client, streams):
    """An array whose call is not answered before the end of the test."""
    calls = []
    streams.on_call = calls.append
    yield client.submit("negative", X)
    for call in calls:
        call.keep()


def test_a_pending_array_is_read_without_waiting_for_its_call(pending, streams):
    np.testing.assert_array_equal(pending.get(timeout=20), X)
    (stream,) = streams.streams
    assert [item.WhichOneof("item") for item in stream.items] == ["prepare", "call", "read"]
    call, read = stream.items[1].call, stream.items[2].read
    assert read.handle == call.result_handles[0] == bytes.fromhex(pending.handle)
    assert read.number != call.number
    assert read.request_id not in ("", call.request_id)
    assert 19 < read.timeout_seconds <= 20
    assert "pending" in repr(pending)


def test_an_array_that_is_there_is_read_by_the_stream_too(there, streams):
    for _ in range(3):
        np.testing.assert_array_equal(there.get(), X)
    (stream,) = streams.streams
    assert [item.WhichOneof("item") for item in stream.items][2:] == ["read"] * 3


def test_a_read_is_sent_again_after_a_refusal_of_the_moment_and_a_lost_connection(there, streams):
    streams.on_read = one_by_one(refuse, lambda read: read.stream.end(UNAVAILABLE), send)
    np.testing.assert_array_equal(there.get(), X)
    assert len(streams.streams) == 2
    assert [item.WhichOneof("item") for item in streams.streams[1].items] == ["read"]


def test_a_call_and_its_read_are_sent_again_in_order(client, streams):
    calls = []
    streams.on_call = one_by_one(calls.append, Call.keep)
    streams.on_read = one_by_one(lambda read: read.stream.end(UNAVAILABLE), send)
    np.testing.assert_array_equal(client.submit("negative", X).get(), X)
    assert [item.WhichOneof("item") for item in streams.streams[1].items] == ["prepare", "call", "read"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (EXHAUSTED, "SERVER_BUSY"),
        (EXHAUSTED, "QUOTA_EXCEEDED"),
        (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING"),
        (grpc.StatusCode.UNIMPLEMENTED, ""),
    ],
)
def test_a_client_whose_stream_is_refused_reads_by_an_rpc(memory, code, reason):
    with_call_streams(memory.info)
    streams = StreamServer(on_opened=lambda stream: stream.end(code, reason))
    memory.server.call_stream = streams.serve
    with shardcall.connect(memory.server.address, shared_memory=False) as client:
        for _ in range(2):
            np.testing.assert_array_equal(client.put(X).get(), X)
    assert len(streams.streams) == 1


def test_a_read_that_the_server_refuses_for_ever_is_not_repeated(client, there, streams):
    streams.on_read = lambda read: read.fail(
        LOST, "ARRAY_LOST", "it is gone", at="handle", handle=there.handle[:8] + "…"
    )
    with pytest.raises(shardcall.ArrayLostError, match="which the mesh no longer has") as caught:
        there.get()
    assert caught.value.field == "handle"
    with pytest.raises(shardcall.ArrayLostError, match="which the mesh no longer has"):
        client.submit("negative", there)
    assert sum(item.HasField("read") for item in streams.streams[0].items) == 1


def test_the_error_of_the_call_is_raised_and_not_that_of_the_read(client, streams):
    streams.on_call = lambda call: call.fail(INVALID, "INVALID_VALUE", "y is negative")
    streams.on_read = lambda read: read.fail(INVALID, "INVALID_VALUE", "y is negative", at="handle")
    h = client.submit("negative", X)
    with pytest.raises(shardcall.InvalidOperandError, match=r"^negative of .*, failed: y is negative") as caught:
        h.get()
    assert caught.value.field == ""
    client.synchronize()


def test_an_answer_without_one_array_breaks_the_contract(there, streams):
    streams.on_read = lambda read: read.send(TYPE, X.tobytes()[:-1])
    with pytest.raises(shardcall.ProtocolError, match="31 of 32 bytes"):
        there.get()


def test_a_read_ends_at_its_timeout_and_is_cancelled(there, streams):
    reads = []
    streams.on_read = reads.append
    with pytest.raises(shardcall.DeadlineExceededError, match=r"within 0\.05 s"):
        there.get(timeout=0.05)
    assert streams.streams[0].cancelled.get(timeout=20) == reads[0].item.number


def failure_of_a_read(pending, streams, end, cancellation=None):
    """Ends a read that nobody answers in another way; returns the read and the error that it raised."""
    reads, raised = [], []
    streams.on_read = reads.append

    def work():
        try:
            with cancellation or nullcontext():
                pending.get()
        except shardcall.ShardcallError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: reads)
    end()
    thread.join(20)
    return reads[0], raised[0]


def test_a_cancelled_wait_cancels_the_read(pending, streams):
    cancellation = Cancellation()
    read, error = failure_of_a_read(pending, streams, cancellation.cancel, cancellation)
    assert isinstance(error, shardcall.CallCancelledError)
    assert streams.streams[0].cancelled.get(timeout=20) == read.item.number


def test_closing_ends_the_read(pending, streams):
    _, error = failure_of_a_read(pending, streams, pending._owner.close)
    assert isinstance(error, shardcall.CallCancelledError | shardcall.ClientClosedError)

"""Reads and puts of arrays by call streams: retries, refusals, errors, threads that stop waiting."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from client.conftest import with_call_streams
from client.stream_server import Call, StreamServer, one_by_one, wait_for
from client_parts import remote_arrays_of

import shardcall
from shardcall import P
from shardcall._src.rpc.cancellation import Cancellation
from shardcall.v1 import array_pb2, mesh_pb2

X = np.arange(4.0)
STRIDED = np.arange(8, dtype=">f8")[::2]  # neither contiguous nor little-endian
TYPE = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[4])
EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
INVALID, PRECONDITION = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


def send(read: Call) -> None:
    read.send(TYPE, X.tobytes())


def failing(*status, **details):
    """Returns an answer that is an error."""
    return lambda item: item.fail(*status, **details)


refuse = failing(EXHAUSTED, "SERVER_BUSY", retry_after_s=0.001)
restart = failing(UNAVAILABLE, "MESH_RESTARTED")


def break_off(item: Call) -> None:
    item.stream.end(UNAVAILABLE)


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


# Reads


def test_a_pending_array_is_read_without_waiting_for_its_call(pending, streams):
    np.testing.assert_array_equal(pending.get(timeout=20), X)
    (stream,) = streams.streams
    assert stream.kinds == ["prepare", "call", "read"]
    call, read = stream.items[1].call, stream.items[2].read
    assert read.handle == call.result_handles[0] == bytes.fromhex(pending.handle)
    assert read.number != call.number
    assert read.request_id not in ("", call.request_id)
    assert 19 < read.timeout_seconds <= 20
    assert "pending" in repr(pending)


def test_a_read_is_sent_again_after_a_refusal_of_the_moment_and_a_lost_connection(there, streams):
    streams.on_read = one_by_one(send, refuse, break_off, send)
    for _ in range(2):
        np.testing.assert_array_equal(there.get(), X)
    assert [stream.kinds for stream in streams.streams] == [["prepare", "call", *["read"] * 3], ["read"]]


def test_a_call_and_its_read_are_sent_again_in_order(client, streams):
    streams.on_call = one_by_one(lambda call: None, Call.keep)
    streams.on_read = one_by_one(break_off, send)
    np.testing.assert_array_equal(client.submit("negative", X).get(), X)
    assert streams.streams[1].kinds == ["prepare", "call", "read"]


REFUSALS = [(EXHAUSTED, "SERVER_BUSY"), (EXHAUSTED, "QUOTA_EXCEEDED"), (grpc.StatusCode.UNIMPLEMENTED, "")]


@pytest.mark.parametrize(("code", "reason"), [*REFUSALS, (grpc.StatusCode.PERMISSION_DENIED, "SCOPE_MISSING")])
def test_a_client_whose_stream_is_refused_makes_rpcs_from_its_first_call_on(memory, code, reason):
    deeds = (
        lambda client: client.put(STRIDED).get(),
        lambda client: client.submit("negative", STRIDED).get(),  # which the server answers with its operand
        lambda client: client.call("echo", STRIDED).array,
    )
    answers = {"on_opened": lambda stream: stream.end(code, reason, retry_after_s=0.01), "on_call": lambda call: None}
    for first in deeds:
        streams, client = connected(memory, **answers)
        with client:
            for deed in (first, *deeds):
                np.testing.assert_array_equal(deed(client), STRIDED)
        assert len(streams.streams) == 1


def test_a_read_that_the_server_refuses_for_ever_is_not_repeated(client, there, streams):
    gone = grpc.StatusCode.NOT_FOUND, "ARRAY_LOST", "it is gone"
    streams.on_read = failing(*gone, at="handle", handle=there.handle[:8] + "…")
    with pytest.raises(shardcall.ArrayLostError, match="which the mesh no longer has") as caught:
        there.get()
    assert caught.value.field == "handle"
    with pytest.raises(shardcall.ArrayLostError, match="which the mesh no longer has"):
        client.submit("negative", there)
    assert streams.streams[0].kinds.count("read") == 1


def test_the_error_of_the_call_is_raised_and_not_that_of_the_read(client, streams):
    streams.on_call = failing(INVALID, "INVALID_VALUE", "y is negative")
    streams.on_read = failing(INVALID, "INVALID_VALUE", "y is negative", at="handle")
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


@pytest.mark.parametrize("is_closed", [False, True], ids=["cancelled", "closed"])
def test_a_read_ends_with_the_wait_for_it_and_with_its_client(client, pending, streams, is_closed):
    reads, cancellation = [], Cancellation()
    streams.on_read = reads.append

    def read():
        with cancellation:
            pending.get()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        wait_for(lambda: reads)
        (client.close if is_closed else cancellation.cancel)()
        assert isinstance(reading.exception(20), shardcall.CallCancelledError | shardcall.ClientClosedError)
    if not is_closed:
        assert streams.streams[0].cancelled.get(timeout=20) == reads[0].item.number


# Puts


def test_a_put_has_the_array_its_layout_its_lease_and_a_handle_of_the_client(client, streams):
    h = client.put(STRIDED, mesh={"x": 1}, spec=("x",), timeout=20)
    plain = client.put(STRIDED)
    item, other = streams.puts
    assert (item.type, item.inline) == (TYPE, np.arange(0.0, 8.0, 2.0).tobytes())
    assert item.mesh == mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="x", size=1)])
    assert [list(entry.axis_names) for entry in item.spec.spec.entries] == [["x"]]
    assert item.lease_id == other.lease_id == remote_arrays_of(client).lease_id
    assert item.handle == bytes.fromhex(h.handle)
    assert (len(item.handle), len({item.handle, other.handle})) == (16, 2)
    assert item.request_id not in ("", other.request_id, h.handle)
    assert 19 < item.timeout_seconds <= 20
    assert not other.HasField("mesh")
    assert not other.spec.HasField("spec")
    assert (h.shape, h.dtype, h.mesh.size, h.spec, plain.nbytes) == ((4,), np.float64, 1, P(None), 32)


def test_a_put_is_sent_again_with_another_handle_after_a_refusal_of_the_moment_and_a_restart(client, streams):
    streams.on_put = one_by_one(refuse, restart, Call.store)
    h = client.put(STRIDED)
    assert (len({item.inline for item in streams.puts}), len({item.handle for item in streams.puts})) == (1, 3)
    assert h.handle == streams.puts[-1].handle.hex()


def test_a_put_is_sent_again_as_it_was_after_a_lost_connection(client, streams):
    streams.on_put = one_by_one(break_off, Call.store)
    h = client.put(STRIDED)
    first, second = streams.puts
    assert (first.handle, first.request_id) == (second.handle, second.request_id)
    assert h.handle == first.handle.hex()


@pytest.mark.parametrize(
    ("answers", "error", "says", "field"),
    [
        ([restart, restart], shardcall.MeshRestartedError, None, ""),
        ([failing(INVALID, "INVALID_MESH", "it is none", at="mesh")], shardcall.ShardingError, "it is none", "mesh"),
        ([send], shardcall.ProtocolError, "the answer to a put is not one array on the mesh", ""),
    ],
    ids=["a second restart", "a refusal", "an answer without the array"],
)
def test_a_put_that_fails_raises_its_error(client, streams, answers, error, says, field):
    streams.on_put = one_by_one(*answers)
    with pytest.raises(error, match=says) as caught:
        client.put(STRIDED)
    assert (caught.value.field, len(streams.puts)) == (field, len(answers))


def connected(memory, **answers):
    """Returns the streams of a server that keeps arrays, and a client of it."""
    streams = StreamServer(**answers)
    memory.server.call_stream = streams.serve
    with_call_streams(memory.info)
    return streams, shardcall.connect(memory.server.address, shared_memory=False)


def test_an_array_that_the_stream_does_not_take_is_put_by_an_rpc(memory):
    _, client = connected(memory, on_put=failing(PRECONDITION, "STREAM_REQUIRED"))
    with client:
        h = client.put(X)
        assert bytes.fromhex(h.handle) in memory.stored


def test_large_arrays_and_those_that_outlive_their_client_are_put_by_an_rpc(memory):
    streams, client = connected(memory)
    memory.info.limits.max_lease_seconds = 60
    with client:
        client.put(np.zeros(2**15 + 1))
        assert streams.streams == []
        client.put(X)
        (stream,) = streams.streams
        assert stream.kinds == ["put"]

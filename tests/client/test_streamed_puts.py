"""Puts of arrays by call streams: items, retries, refusals, errors."""

import grpc
import numpy as np
import pytest
from client.conftest import with_call_streams
from client.stream_server import Call, StreamServer, one_by_one
from client_parts import remote_arrays_of

import shardcall
from shardcall import P
from shardcall.v1 import array_pb2, mesh_pb2

X = np.arange(8, dtype=">f8")[::2]  # neither contiguous nor little-endian
DATA = np.arange(0.0, 8.0, 2.0).tobytes()
EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
INVALID, PRECONDITION = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


def test_a_put_has_the_array_its_layout_its_lease_and_a_handle_of_the_client(stream_client, streams):
    h = stream_client.put(X, mesh={"x": 1}, spec=("x",), timeout=20)
    plain = stream_client.put(X)
    item, other = streams.puts
    assert item.type == array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[4])
    assert item.inline == DATA
    assert item.mesh == mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="x", size=1)])
    assert [list(entry.axis_names) for entry in item.spec.spec.entries] == [["x"]]
    assert item.lease_id == other.lease_id == remote_arrays_of(stream_client).lease_id
    assert item.handle == bytes.fromhex(h.handle)
    assert (len(item.handle), len({item.handle, other.handle})) == (16, 2)
    assert item.request_id not in ("", other.request_id, h.handle)
    assert 19 < item.timeout_seconds <= 20
    assert not other.HasField("mesh")
    assert not other.spec.HasField("spec")
    assert (h.shape, h.dtype, h.mesh.size, h.spec, plain.nbytes) == ((4,), np.float64, 1, P(None), 32)


def test_a_put_is_sent_again_with_another_handle_after_a_refusal_of_the_moment_and_a_restart(stream_client, streams):
    streams.on_put = one_by_one(
        lambda put: put.fail(EXHAUSTED, "SERVER_BUSY", retry_after_s=0.001),
        lambda put: put.fail(UNAVAILABLE, "MESH_RESTARTED"),
        Call.store,
    )
    h = stream_client.put(X)
    assert [item.inline for item in streams.puts] == [DATA] * 3
    assert len({item.handle for item in streams.puts}) == 3
    assert h.handle == streams.puts[-1].handle.hex()


def test_a_put_is_sent_again_as_it_was_after_a_lost_connection(stream_client, streams):
    streams.on_put = one_by_one(lambda put: put.stream.end(UNAVAILABLE), Call.store)
    h = stream_client.put(X)
    first, second = streams.puts
    assert (first.handle, first.request_id) == (second.handle, second.request_id)
    assert h.handle == first.handle.hex()


def test_a_second_restart_of_the_mesh_is_raised(stream_client, streams):
    streams.on_put = one_by_one(*[lambda put: put.fail(UNAVAILABLE, "MESH_RESTARTED")] * 2)
    with pytest.raises(shardcall.MeshRestartedError):
        stream_client.put(X)
    assert len(streams.puts) == 2


def test_the_error_of_a_put_is_raised(stream_client, streams):
    streams.on_put = one_by_one(lambda put: put.fail(INVALID, "INVALID_MESH", "the mesh is none", at="mesh"))
    with pytest.raises(shardcall.ShardingError, match="the mesh is none") as caught:
        stream_client.put(X)
    assert caught.value.field == "mesh"


def test_an_answer_without_the_array_breaks_the_contract(stream_client, streams):
    array_type = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[4])
    streams.on_put = one_by_one(lambda put: put.send(array_type, DATA))
    with pytest.raises(shardcall.ProtocolError, match="the answer to a put is not one array on the mesh"):
        stream_client.put(X)


def connected(memory, **streams):
    memory.server.call_stream = (stream_server := StreamServer(**streams)).serve
    with_call_streams(memory.info)
    return stream_server, shardcall.connect(memory.server.address, shared_memory=False)


def test_a_client_whose_stream_is_refused_puts_by_an_rpc(memory):
    streams, client = connected(memory, on_opened=lambda stream: stream.end(EXHAUSTED, "SERVER_BUSY"))
    with client:
        for _ in range(2):
            np.testing.assert_array_equal(client.put(X).get(), X)
    assert len(streams.streams) == 1
    assert len(memory.stored) == 0


def test_an_array_that_the_stream_does_not_take_is_put_by_an_rpc(memory):
    _, client = connected(memory, on_put=lambda put: put.fail(PRECONDITION, "STREAM_REQUIRED"))
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
        assert [item.WhichOneof("item") for item in stream.items] == ["put"]

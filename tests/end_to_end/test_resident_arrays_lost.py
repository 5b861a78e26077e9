"""Arrays that stay on the mesh until something ends them, and those that never come to stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, details, mesh, open_channel, operand, spec, tensor
from end_to_end.processes import X, wait_for
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import array_pb2, array_service_pb2, array_service_pb2_grpc, kernel_service_pb2

MIB = 1 << 20
LEASE = b"lease of a test."


@pytest.fixture(scope="module")
def forgetful() -> Iterator[ServerProcess]:
    """A server that outlives what the tests do to its mesh, and waits for renewals for 5 s."""
    with running_server("--lease-s", "5", why="its leases are short") as running:
        yield running


@pytest.fixture
def arrays(server) -> Iterator[array_service_pb2_grpc.ArrayServiceStub]:
    """The service as it is, without a client that renews leases."""
    with open_channel(server.address) as channel:
        yield array_service_pb2_grpc.ArrayServiceStub(channel)


def put_request(lease_id: bytes = LEASE, **header) -> array_service_pb2.PutArrayRequest:
    header = {"array": operand(X), **header}
    return array_service_pb2.PutArrayRequest(header=array_service_pb2.PutArrayHeader(lease_id=lease_id, **header))


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


def nothing_of_it_is_left(client: sc.Client) -> bool:
    """Returns whether a server that shares memory with other clients holds no array and nothing of any call."""
    usage = client.usage()
    return not (usage.regions or usage.leases or usage.arrays)


def test_arrays_whose_objects_the_caller_lost_are_deleted_and_the_others_are_not(forgetful):
    with sc.connect(forgetful.address) as client:
        kept = client.put(X)
        client.put(X)
        wait_for(lambda: client.usage().arrays == 1)
        same(kept.get(), X)


def test_closing_a_client_deletes_its_arrays_at_once(server, client):
    with sc.connect(server.address) as other:
        kept = other.put(X)
        assert client.usage().arrays == 1
    assert client.usage().arrays == 0
    assert kept.lost


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"mesh": mesh(x=9)}, "NOT_ENOUGH_DEVICES"),
        ({"mesh": mesh(x=0)}, "INVALID_MESH"),
        ({"mesh": mesh(x=8), "spec": spec("y")}, "UNKNOWN_MESH_AXIS"),
        ({"mesh": mesh(x=8), "spec": spec("x", "x")}, "MESH_AXIS_REUSED"),
        ({"mesh": mesh(x=8), "spec": spec(None, None, "x")}, "SPEC_TOO_LONG"),
        ({"lease_id": b"short"}, "MALFORMED_REQUEST"),
        ({"array": kernel_service_pb2.Operand()}, "MALFORMED_REQUEST"),
        ({"array": kernel_service_pb2.Operand(type=tensor(2), inline={"data": bytes(15)})}, "SIZE_MISMATCH"),
        ({"array": kernel_service_pb2.Operand(type=tensor(2), resident={"handle": bytes(16)})}, "MALFORMED_REQUEST"),
        (
            {"array": kernel_service_pb2.Operand(type=tensor(2), segment={"segment_id": bytes(16)})},
            "SEGMENT_NOT_FOUND",
        ),
        (
            {
                "array": kernel_service_pb2.Operand(
                    type=tensor(2, element_type=array_pb2.ELEMENT_TYPE_BOOL), inline={"data": b"\1\2"}
                )
            },
            "INVALID_OPERAND",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "a put",
)
def test_what_cannot_be_put_is_refused_and_leaves_nothing(client, arrays, header, reason):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(iter([put_request(**header)]), timeout=60)
    assert details(caught.value)["ErrorInfo"].reason == reason
    assert not arrays.ListArrays(array_service_pb2.ListArraysRequest(lease_id=LEASE), timeout=60).arrays
    wait_for(lambda: nothing_of_it_is_left(client))


def test_a_truth_value_that_is_neither_is_refused_in_a_stream_too(client, arrays):
    array_type = tensor(2 << 20, element_type=array_pb2.ELEMENT_TYPE_BOOL)
    streamed = put_request(array=kernel_service_pb2.Operand(type=array_type, streamed={}))
    chunks = [chunk(0, 0, 1 << 20).chunk, array_pb2.TensorChunk(offset=1 << 20, data=bytes((1 << 20) - 1) + b"\2")]
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(
            iter([streamed, *(array_service_pb2.PutArrayRequest(chunk=piece) for piece in chunks)]), timeout=10
        )
    assert details(caught.value)["ErrorInfo"].reason == "INVALID_OPERAND"
    wait_for(lambda: nothing_of_it_is_left(client))


@pytest.fixture
def half_a_put() -> Iterator[Iterator[array_service_pb2.PutArrayRequest]]:
    """Messages that stop in the middle of an array, until the test is over."""
    finished = threading.Event()

    def messages() -> Iterator[array_service_pb2.PutArrayRequest]:
        yield put_request(array=kernel_service_pb2.Operand(type=tensor(4, MIB // 8), streamed={}))
        yield array_service_pb2.PutArrayRequest(chunk=chunk(0, 0, MIB).chunk)
        finished.wait()

    yield messages()
    finished.set()


def test_a_put_that_is_cancelled_in_the_middle_leaves_nothing(client, arrays, half_a_put):
    wait_for(lambda: nothing_of_it_is_left(client))  # of the test before
    put = arrays.PutArray.future(half_a_put, timeout=30)
    wait_for(lambda: client.usage().bytes_in_use >= MIB)
    put.cancel()
    wait_for(lambda: nothing_of_it_is_left(client))


def test_a_put_that_is_not_done_in_time_leaves_nothing(client, arrays, half_a_put):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(half_a_put, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_for(lambda: nothing_of_it_is_left(client))


def test_a_put_that_ends_in_the_middle_is_refused(client, arrays, half_a_put):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(iter([next(half_a_put), next(half_a_put)]), timeout=60)
    assert details(caught.value)["ErrorInfo"].reason == "SIZE_MISMATCH"
    wait_for(lambda: nothing_of_it_is_left(client))

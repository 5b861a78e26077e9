"""Arrays that stay on the mesh until something ends them, and those that never come to stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, details, mesh, open_channel, operand, spec, tensor
from end_to_end.processes import X, holds_nothing, stopped, wait_for

import shardcall as sc
from shardcall.v1 import array_pb2, array_service_pb2, array_service_pb2_grpc, kernel_service_pb2

MIB = 1 << 20
LEASE = b"lease of a test."


@pytest.fixture
def arrays(limited_server) -> Iterator[array_service_pb2_grpc.ArrayServiceStub]:
    """The service as it is, without a client that renews leases."""
    with open_channel(limited_server.address) as channel:
        yield array_service_pb2_grpc.ArrayServiceStub(channel)


def put_request(lease_id: bytes = LEASE, **header) -> array_service_pb2.PutArrayRequest:
    header = {"array": operand(X), **header}
    return array_service_pb2.PutArrayRequest(header=array_service_pb2.PutArrayHeader(lease_id=lease_id, **header))


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


def test_arrays_whose_objects_the_caller_lost_are_deleted_and_the_others_are_not(limited_server):
    with sc.connect(limited_server.address) as client:
        kept = client.put(X)
        client.put(X)
        wait_for(lambda: client.usage().arrays == 1)
        same(kept.get(), X)


def test_closing_a_client_deletes_its_arrays_at_once(limited_server, ours):
    with sc.connect(limited_server.address) as other:
        kept = other.put(X)
        assert ours.usage().arrays == 1
    assert ours.usage().arrays == 0
    assert kept.lost


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"mesh": mesh(x=9)}, "NOT_ENOUGH_DEVICES"),
        ({"mesh": mesh(**{f"a{i}": 1 << 62 for i in range(16)})}, "NOT_ENOUGH_DEVICES"),
        ({"mesh": mesh(x=0)}, "INVALID_MESH"),
        ({"mesh": mesh(x=2), "spec": spec("y")}, "UNKNOWN_MESH_AXIS"),
        ({"mesh": mesh(x=2), "spec": spec("x", "x")}, "MESH_AXIS_REUSED"),
        ({"mesh": mesh(x=2), "spec": spec(None, None, "x")}, "SPEC_TOO_LONG"),
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
def test_what_cannot_be_put_is_refused_and_leaves_nothing(ours, arrays, header, reason):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(iter([put_request(**header)]), timeout=60)
    assert details(caught.value)["ErrorInfo"].reason == reason
    assert not arrays.ListArrays(array_service_pb2.ListArraysRequest(lease_id=LEASE), timeout=60).arrays
    wait_for(lambda: holds_nothing(ours))


def test_a_truth_value_that_is_neither_is_refused_in_a_stream_too(ours, arrays):
    array_type = tensor(2 << 20, element_type=array_pb2.ELEMENT_TYPE_BOOL)
    streamed = put_request(array=kernel_service_pb2.Operand(type=array_type, streamed={}))
    chunks = [chunk(0, 0, 1 << 20).chunk, array_pb2.TensorChunk(offset=1 << 20, data=bytes((1 << 20) - 1) + b"\2")]
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(
            iter([streamed, *(array_service_pb2.PutArrayRequest(chunk=piece) for piece in chunks)]), timeout=10
        )
    assert details(caught.value)["ErrorInfo"].reason == "INVALID_OPERAND"
    wait_for(lambda: holds_nothing(ours))


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


def test_a_put_that_is_cancelled_in_the_middle_leaves_nothing(ours, arrays, half_a_put):
    wait_for(lambda: holds_nothing(ours))  # of the test before
    put = arrays.PutArray.future(half_a_put, timeout=30)
    wait_for(lambda: ours.usage().bytes_in_use >= MIB)
    put.cancel()
    wait_for(lambda: holds_nothing(ours))


def test_a_put_that_is_not_done_in_time_leaves_nothing(ours, arrays, half_a_put):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(half_a_put, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_for(lambda: holds_nothing(ours))


def test_a_put_that_ends_in_the_middle_is_refused(ours, arrays, half_a_put):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(iter([next(half_a_put), next(half_a_put)]), timeout=60)
    assert details(caught.value)["ErrorInfo"].reason == "SIZE_MISMATCH"
    wait_for(lambda: holds_nothing(ours))


def test_an_operand_may_be_deleted_while_a_call_waits_for_the_mesh(limited_server):
    x = np.random.default_rng(7).standard_normal((1024, 130))
    with sc.connect(limited_server.address, shared_memory=False) as client, ThreadPoolExecutor(1) as pool:
        results = []
        for _ in range(5):
            there = client.put(x, mesh=sc.Mesh(x=2), spec=sc.P("x", None))
            client.compile("diff", there, axis=0)
            with stopped(limited_server):
                call = pool.submit(client.diff, there, axis=0)
                wait_for(lambda: client.usage().regions > 0)
                assert client.delete(there) == 1
            with suppress(sc.ArrayLostError):  # where it was deleted before the call was sent to the mesh
                results.append(call.result(120).array)
        assert results
        for result in results:
            same(result, np.diff(x, axis=0))
        wait_for(lambda: holds_nothing(client))


def test_a_lease_ends_unless_it_is_renewed(arrays, ours):
    kept = ours.put(X)
    handle = arrays.PutArray(iter([put_request()]), timeout=60).array.handle
    wait_for(lambda: ours.usage().leases == 1)
    with pytest.raises(grpc.RpcError) as caught:
        next(arrays.GetArray(array_service_pb2.GetArrayRequest(handle=handle), timeout=60))
    assert details(caught.value)["ErrorInfo"].reason == "ARRAY_LOST"
    assert not arrays.RenewLease(array_service_pb2.RenewLeaseRequest(lease_id=LEASE), timeout=60).holds_arrays
    same(kept.get(), X)

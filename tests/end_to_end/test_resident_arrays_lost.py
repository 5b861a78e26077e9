"""Arrays that stay on the mesh until something ends them, and those that never come to stay."""

import threading
from collections.abc import Callable, Iterator

import grpc
import pytest
from end_to_end.messages import chunk, details, mesh, operand, tensor
from end_to_end.processes import X, wait_for
from servers import holds_nothing

from shardcall.v1 import array_pb2, array_service_pb2, kernel_service_pb2

MIB = 1 << 20
LEASE = b"lease of a test."


def put_request(**header) -> array_service_pb2.PutArrayRequest:
    header = {"array": operand(X), "lease_id": LEASE, **header}
    return array_service_pb2.PutArrayRequest(header=array_service_pb2.PutArrayHeader(**header))


def streamed(array_type: array_pb2.ArrayType) -> array_service_pb2.PutArrayRequest:
    return put_request(array=kernel_service_pb2.Operand(type=array_type, streamed={}))


def refusal(put: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        put()
    return details(caught.value)["ErrorInfo"].reason


def test_what_cannot_be_put_leaves_nothing(observer, arrays):
    boolean = array_pb2.ELEMENT_TYPE_BOOL
    not_boolean = kernel_service_pb2.Operand(type=tensor(2, element_type=boolean), inline={"data": b"\1\2"})
    pieces = [chunk(0, 0, MIB).chunk, array_pb2.TensorChunk(offset=MIB, data=bytes(MIB - 1) + b"\2")]
    for reason, messages in {
        "NOT_ENOUGH_DEVICES": [put_request(mesh=mesh(x=9))],
        "SIZE_MISMATCH": [put_request(array=kernel_service_pb2.Operand(type=tensor(2), inline={"data": bytes(15)}))],
        "INVALID_OPERAND": [put_request(array=not_boolean)],
        "INVALID_OPERAND in a stream": [
            streamed(tensor(2 * MIB, element_type=boolean)),
            *(array_service_pb2.PutArrayRequest(chunk=piece) for piece in pieces),
        ],
    }.items():
        assert refusal(lambda messages=messages: arrays.PutArray(iter(messages), timeout=60)) == reason.split()[0]
        assert not arrays.ListArrays(array_service_pb2.ListArraysRequest(lease_id=LEASE), timeout=60).arrays
        wait_for(lambda: holds_nothing(observer))


@pytest.fixture
def half_a_put() -> Iterator[Iterator[array_service_pb2.PutArrayRequest]]:
    """Messages that stop in the middle of an array, until the test is over."""
    finished = threading.Event()

    def messages() -> Iterator[array_service_pb2.PutArrayRequest]:
        yield streamed(tensor(4, MIB // 8))
        yield array_service_pb2.PutArrayRequest(chunk=chunk(0, 0, MIB).chunk)
        finished.wait()

    yield messages()
    finished.set()


def test_a_put_that_is_cancelled_in_the_middle_leaves_nothing(observer, arrays, half_a_put):
    put = arrays.PutArray.future(half_a_put, timeout=30)
    wait_for(lambda: observer.usage().bytes_in_use >= MIB)
    put.cancel()


def test_a_put_that_is_not_done_in_time_leaves_nothing(observer, arrays, half_a_put):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(half_a_put, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_put_that_ends_in_the_middle_is_refused(observer, arrays, half_a_put):
    sent = [next(half_a_put), next(half_a_put)]
    assert refusal(lambda: arrays.PutArray(iter(sent), timeout=60)) == "SIZE_MISMATCH"

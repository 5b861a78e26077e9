"""Invalid puts, which the front end refuses before it reads any data; lists that are too long for a message."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, call, check, mesh, open_channel, operand

from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2, kernel_service_pb2_grpc

X = np.arange(24.0).reshape(6, 4)
LEASE = b"lease of refusals"


def put(stub, **header):
    header = array_service_pb2.PutArrayHeader(lease_id=LEASE, array=operand(X), **header)
    return stub.PutArray(iter([array_service_pb2.PutArrayRequest(header=header)]), timeout=30)


@pytest.mark.parametrize("axes", [{"x": 1 << 40}, {f"a{i}": 1 << 62 for i in range(16)}], ids=["large", "absurd"])
def test_a_mesh_of_more_devices_than_there_are_has_a_specific_error(channel, axes):
    with pytest.raises(grpc.RpcError) as caught:
        put(array_service_pb2_grpc.ArrayServiceStub(channel), mesh=mesh(**axes), spec={"spec": {}})
    check(caught.value, INVALID, "NOT_ENOUGH_DEVICES", "mesh", "asks for")


def test_a_list_that_no_message_holds_is_refused_and_its_arrays_are_there(server_factory):
    server = server_factory("--max-message-bytes", str(2 << 20))
    axes = mesh(**{letter * 64: 1 for letter in "abcdefghijklmnop"})
    x = np.arange(2.0**12).reshape((2,) * 12)
    request = kernel_service_pb2.ExecuteRequest(
        call=call("gradient", mesh=axes), operands=[operand(x)], keep_results=True, lease_id=LEASE
    )
    with open_channel(server.address) as channel:
        kernels = kernel_service_pb2_grpc.KernelServiceStub(channel)
        results = []
        while len(results) < 1100:  # each description has 2 KiB, most of it the names of axes
            results += kernels.Execute(request, timeout=120).results
        stub = array_service_pb2_grpc.ArrayServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ListArrays(array_service_pb2.ListArraysRequest(lease_id=LEASE), timeout=30)
        check(
            caught.value,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CALL_TOO_LARGE",
            "lease_id",
            "describe one array at a time",
        )
        described = array_service_pb2.DescribeArrayRequest(handle=results[-1].resident.handle)
        assert stub.DescribeArray(described, timeout=30).array.device_bytes == x.nbytes

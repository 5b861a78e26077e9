"""The tests of `test_put_refusals.py` that take long."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, check, mesh, open_channel, operand
from end_to_end.test_put_refusals import LEASE

from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2, kernel_service_pb2_grpc

pytestmark = pytest.mark.long


def test_a_list_that_no_message_holds_is_refused_and_its_arrays_are_there(server_factory):
    server = server_factory("--max-message-bytes", str(2 << 20), why="its messages are small")
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

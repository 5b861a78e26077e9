"""Invalid puts, which the front end refuses before it reads any data; lists that are too long for a message."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from end_to_end.messages import INVALID, check, mesh, operand

from shardcall.v1 import array_service_pb2, array_service_pb2_grpc

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

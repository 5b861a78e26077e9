"""Calls that are refused for their operands' values, by every transport and method."""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest

import shardcall as sc

MESH = sc.Mesh(a=4, b=2)
REFUSED = "y holds a negative integer.*float_power"


@pytest.fixture
def client(server, call_stream) -> Iterator[sc.Client]:
    with sc.connect(server.address, call_stream=call_stream) as connected:
        yield connected


def refused(call):
    with pytest.raises(sc.InvalidOperandError, match=REFUSED) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert (caught.value.reason, caught.value.field) == ("INVALID_VALUE", "y")
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("shared_memory", [True, False])
def test_results_that_are_sent_in_pieces_are_not_begun(server, shared_memory):
    x = np.ones((1031, 1031), np.int8)
    y = x.copy()
    y[1030, 1030] = -1
    with sc.connect(server.address, shared_memory=shared_memory) as client:
        refused(lambda: client.power(x, y, mesh=MESH))
        np.testing.assert_array_equal(client.power(x, x, mesh=MESH).array, x, strict=True)

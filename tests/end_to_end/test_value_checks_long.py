"""Calls that are refused for their operands' values, by every method; `test_transports.py` has every transport."""

from collections.abc import Iterator

import grpc
import numpy as np
import pytest

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

MESH = sc.Mesh(a=4, b=2)


@pytest.fixture
def client(server, call_stream) -> Iterator[sc.Client]:
    with sc.connect(server.address, call_stream=call_stream) as connected:
        yield connected


def refused(call):
    with pytest.raises(sc.InvalidOperandError, match=r"y holds a negative integer.*float_power") as caught:
        call()
    assert isinstance(caught.value, ValueError)
    assert (caught.value.reason, caught.value.field) == ("INVALID_VALUE", "y")
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT


def test_powers_are_refused_as_numpy_refuses_them(client):
    x = np.array([3, 2, 1], np.int8)
    refused(lambda: client.power(x, -3))
    refused(lambda: client.power(3, -3))
    refused(lambda: client.call("power", x, -x))
    refused(lambda: client.power(np.uint8(3), np.int8(-1)))
    np.testing.assert_array_equal(client.power(x, 3).array, x**3, strict=True)
    np.testing.assert_allclose(client.power(x, -3.0).array, np.power(x, -3.0))
    compiled = client.compile("power", sc.Array((3,), "int8"), sc.Array((3,), "int8"))
    np.testing.assert_array_equal(compiled(x, x).array, x**x, strict=True)
    refused(lambda: compiled(x, -x))


def test_what_is_refused_is_not_kept(client):
    x = np.full((19, 3), 2, np.int32)
    y = x.copy()
    y[18, 2] = -1
    held = client.put(y, mesh=MESH, spec=P("a", None))
    before = len(client.list())
    refused(lambda: client.power(x, held, keep=True))
    assert len(client.list()) == before
    kept = client.power(x, x, mesh=MESH, keep=True).array
    np.testing.assert_array_equal(np.asarray(kept), x**x, strict=True)
    client.delete(held, kept)

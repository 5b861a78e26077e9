"""The tests of `test_value_checks.py` that take long."""

from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.test_value_checks import MESH, refused

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


@pytest.fixture
def client(server, call_stream) -> Iterator[sc.Client]:
    with sc.connect(server.address, call_stream=call_stream) as connected:
        yield connected


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

"""Differences and their family through a client."""

import numpy as np
import pytest

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)
SHARDED = {"mesh": MESH, "spec": P("a", "b")}


def test_rolls_beyond_64_bits_go_round(client):
    x = np.arange(42.0).reshape(6, 7)
    for shift, axis in ((2**100, None), (-(2**63) - 1, 1), (np.uint64(2**63 + 2), -2)):
        np.testing.assert_array_equal(client.roll(x, shift, axis, **SHARDED).array, np.roll(x, shift, axis))
    for shift in ((2**70, 3), [-(10**30), np.int8(-1)]):
        np.testing.assert_array_equal(client.roll(x, shift, (0, 1), **SHARDED).array, np.roll(x, shift, (0, 1)))
    with pytest.raises(sc.AxisError, match="axis=5"):
        client.roll(x, 2**70, 5)
    with pytest.raises(sc.InvalidParameterError, match="shift"):
        client.roll(x, "3")


def test_one_axis_of_a_list_is_an_axis(client):
    x = np.arange(24.0).reshape(8, 3) ** 2
    np.testing.assert_allclose(client.gradient(x, axis=[0], **SHARDED).array, np.gradient(x, axis=0))


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[s]"])
def test_dates_say_how_they_can_travel(client, dtype):
    x = np.arange(8).astype(dtype)
    with pytest.raises(sc.OperandTypeError, match=r"give its integers, \.view\('int64'\)"):
        client.diff(x)
    integers = client.diff(x.view("int64")).array
    np.testing.assert_array_equal(integers.view(dtype.replace("datetime", "timedelta")), np.diff(x))

"""Elementwise functions, reductions and layouts, called as NumPy's are."""

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)


def test_elementwise_calls_have_numpys_signatures(client):
    x = np.linspace(-3, 3, 61 * 3, dtype=np.float32).reshape(61, 3)
    placed = {"mesh": MESH, "spec": P("a", "b")}
    np.testing.assert_allclose(client.sin(x, **placed).array, np.sin(x), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(client.where(x > 0, x, 0, **placed).array, np.where(x > 0, x, 0))
    np.testing.assert_array_equal(client.clip(x, -1, max=1, **placed).array, np.clip(x, -1, 1))
    held = client.put(x, mesh=MESH, spec=P("b", None))
    np.testing.assert_array_equal(client.call("add", held, x[0]).array, x + x[0])
    np.testing.assert_array_equal(client.argmax(held, axis=0).array, np.argmax(x, 0))
    assert client.mean(held, axis=1, dtype="float64").array.dtype == np.float64
    moved = client.reshard(held, out_spec=P(None, ("a", "b")), keep=True).array
    assert moved.spec == P(None, ("a", "b"))
    np.testing.assert_array_equal(client.transpose(moved).array, x.T)


def test_a_padded_move_keeps_the_smallest_numbers(client):
    x = np.array([1, 0x8001, 0x7F, 0x3F80, 2], np.uint16).view(ml_dtypes.bfloat16)  # subnormals, but one
    for strategy in ("auto", "gspmd"):
        moved = client.reshard(x, mesh=sc.Mesh(x=3), spec=P(None), out_spec=P("x"), strategy=strategy).array
        np.testing.assert_array_equal(moved.view(np.uint16), x.view(np.uint16))


def test_python_numbers_take_the_arrays_type(client):
    small = np.array([1, 2, 200], np.uint8)
    half = np.ones(3, np.float32)
    for result, expected in [
        (client.add(half, 1.5), np.add(half, 1.5)),
        (client.multiply(3, half), np.multiply(3, half)),
        (client.add(small, 1), np.add(small, 1)),
        (client.less(small, 300), np.less(small, 300)),
        (client.where(small > 1, half, 0), np.where(small > 1, half, 0)),
    ]:
        assert result.array.dtype == expected.dtype
        np.testing.assert_array_equal(result.array, expected)
    with pytest.raises(sc.InvalidOperandError, match="300 beside an array of uint8"):
        client.add(small, 300)
    with pytest.raises(sc.OperandTypeError, match=r"numpy\.subtract does not take bool"):
        client.subtract(small > 1, small > 2)


def test_a_copy_is_independent_of_its_source(client):
    x = np.arange(64.0)
    held = client.put(x, mesh=MESH)
    copy = client.copy(held, keep=True).array
    client.delete(held)
    np.testing.assert_array_equal(np.asarray(copy), x)

"""Arrays of submitted calls, on a real server."""

import numpy as np
import pytest
from client_parts import stream_of
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall import ArrayLostError


@pytest.fixture
def client(server):
    """A client with arrays of its own."""
    with sc.connect(server.address) as client:
        yield client


def test_a_chain_on_two_meshes(client):
    x = client.put(np.arange(12.0), mesh=sc.Mesh(x=2), spec=sc.P("x"))
    y = client.submit("add", x, 1.0)
    z = client.submit("multiply", y, 2.0, mesh=sc.Mesh(x=4), in_specs=[sc.P("x")])
    u = client.submit("diff", z)
    assert (y.mesh.size, z.mesh.size, u.mesh.size) == (2, 4, 4)
    np.testing.assert_array_equal(u, np.diff((np.arange(12.0) + 1) * 2))


def test_a_chain_equals_numpy(client):
    expected = np.arange(24.0).reshape(6, 4)
    x = client.put(expected)
    for i in range(1000):
        x = client.submit("add", x, float(i))
        expected = expected + i
    assert x.shape == (6, 4)
    np.testing.assert_array_equal(x, expected)
    assert x.mesh == client.put(expected).mesh
    wait_for(lambda: len(client.list()) <= 1)


def test_an_array_is_an_operand_of_every_type_of_call(client):
    x = client.submit("add", np.arange(8.0), 1.0)
    np.testing.assert_array_equal(client.diff(x).array, np.ones(7))
    np.testing.assert_array_equal(client.diff(client.submit("add", x, 1.0), keep=True).array, np.ones(7))
    large = np.ones((2**18, 8))
    np.testing.assert_array_equal(
        client.call("add", client.submit("add", x, 1.0), large).array, large + np.arange(2.0, 10.0)
    )
    compiled = client.compile("diff", sc.Array(8, "float64"), mesh=x.mesh, in_specs=[x.spec])
    np.testing.assert_array_equal(compiled(client.submit("copy", x)).array, np.ones(7))
    assert client.plan("diff", client.submit("copy", x)).results[0].type == sc.Array(7, "float64")


def test_results_that_another_client_waits_for_are_operands(client, server):
    x = np.arange(13.0)
    h = client.put(x)
    with sc.connect(server.address) as other:
        step = client.jit(lambda a: a + 1)
        for _ in range(3):
            np.testing.assert_array_equal(h + (other.put(x) * 2.0), x * 3)
            np.testing.assert_array_equal(client.add(h, other.put(x) * 3.0).array, x * 4)
            np.testing.assert_array_equal(step(other.put(x) * 4.0), x * 4 + 1)
        bad = other.submit("power", other.put(np.array([1, 2])), -1)
        with pytest.raises(sc.InvalidOperandError, match="negative integer"):
            client.put(np.ones(2)) + bad


def test_the_array_of_a_dropped_object_of_another_client_is_deleted_after_the_calls_that_use_it(client, server):
    x = np.arange(13.0)
    h = client.put(x)
    with sc.connect(server.address) as other:
        for _ in range(20):
            np.testing.assert_array_equal(h + other.put(x), x * 2)
            np.testing.assert_array_equal(client.submit("add", h, other.put(x)), x * 2)
        wait_for(lambda: len(other.list()) == 0)


def test_results_of_one_element_come_with_the_answer(client, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a call of its own")

    monkeypatch.setattr(stream_of(client), "read", refuse)
    x = client.put(np.arange(12.0).reshape(4, 3), mesh={"x": 2}, spec=("x", None))
    assert float(x.sum()) == 66
    assert (x.max() - 1).get() == 10
    for name in ("bool", "int4", "uint8", "bfloat16", "float16", "float64", "complex128"):
        one = client.submit("reshard", np.ones((1, 1), name), mesh={"x": 2}, out_specs=[("x", None)])
        assert one.get().shape == (1, 1)
        assert one.get().dtype == name
        assert complex(one) == 1
    kept = client.call("negative", np.float32(2), keep=True).array
    assert kept.item() == -2
    with pytest.raises(AssertionError):
        client.submit("negative", np.ones(3)).get()
    kept.delete()
    with pytest.raises(ArrayLostError):
        kept.get()

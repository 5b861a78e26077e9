"""Arrays of submitted calls, on a real server."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.processes import wait_for

import shardcall as sc


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


def test_an_error_in_the_middle_fails_the_rest(client):
    x = client.submit("add", [1, 2], 1)
    bad = client.submit("power", x, -1)
    last = client.submit("add", client.submit("add", bad, 1), 1)
    for array in (last, bad):
        with pytest.raises(
            sc.InvalidOperandError, match=r"^power of int64\[2\], int64\[\], submitted at .*test_pending_"
        ):
            array.get()
    assert x.get().tolist() == [2, 3]
    later = client.submit("add", bad, 1)
    with pytest.raises(sc.InvalidOperandError, match=r"^power of "):
        later.mesh.size  # noqa: B018
    client.synchronize()


def test_arrays_are_deleted_after_the_calls_that_use_them(client):
    for _ in range(20):
        x = client.put(np.ones(4))
        y = client.submit("add", x, 1.0)
        z = client.submit("add", y, 1.0)
        assert client.delete(x, y) == 2
        np.testing.assert_array_equal(z, np.full(4, 3.0))
    del z
    wait_for(lambda: not client.list())


@pytest.mark.parametrize(
    ("error", "name", "operands", "parameters"),
    [
        (sc.KernelNotFoundError, "ad", ([1.0], 1.0), {}),
        (sc.OperandCountError, "add", ([1.0],), {}),
        (sc.InvalidOperandError, "add", ([1.0, 2.0], [1.0, 2.0, 3.0]), {}),
        (sc.OperandTypeError, "bitwise_and", ([1.0], [1.0]), {}),
        (sc.UnknownParameterError, "diff", ([1.0],), {"order": 2}),
        (sc.AxisError, "sum", ([1.0],), {"axis": 1}),
        (sc.ParameterTypeError, "diff", ([1.0],), {"n": "two"}),
    ],
)
def test_wrong_arguments_are_refused_in_the_same_line(client, error, name, operands, parameters):
    with pytest.raises(error) as submitted:
        client.submit(name, *operands, **parameters)
    with pytest.raises(error) as called:
        client.call(name, *operands, **parameters)
    assert (type(submitted.value), str(submitted.value)) == (type(called.value), str(called.value))
    client.synchronize()


def test_a_synchronous_client_raises_in_the_line_that_submits(server):
    with sc.connect(server.address, synchronous=True) as client:
        x = client.submit("add", [1, 2], 1)
        with pytest.raises(sc.InvalidOperandError, match="negative integer"):
            client.submit("power", x, -1)


def test_threads_have_separate_chains(client):
    def chain(start):
        x = client.submit("add", np.full(3, float(start)), 0.0)
        for _ in range(40):
            x = client.submit("add", x, 1.0)
        return x.get().tolist()

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(chain, range(12))) == [[start + 40.0] * 3 for start in range(12)]

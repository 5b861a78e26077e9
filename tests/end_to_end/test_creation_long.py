"""The tests of `test_creation.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_creation import same

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


CALLS = [
    lambda xp: xp.zeros(5),
    lambda xp: xp.zeros((3, 0), np.int8),
    lambda xp: xp.ones((2, 3), dtype="complex64"),
    lambda xp: xp.full(4, 2.5, np.float32),
    lambda xp: xp.full((2, 3), [1, 2, 3], np.int16),
    lambda xp: xp.full((), True),
    lambda xp: xp.zeros(np.array([2, 3])),
    lambda xp: xp.arange(3.5),
    lambda xp: xp.arange(9, 2, -0.7),
    lambda xp: xp.arange(0.1, 500, 0.1, dtype=np.float32),
    lambda xp: xp.arange(5, 5),
    lambda xp: xp.arange(-3, 4, dtype=np.int8),
    lambda xp: xp.linspace(0.1, 77.7, 4099),
    lambda xp: xp.linspace(3, -2, 7, endpoint=False),
    lambda xp: xp.linspace(0, 1j, 5),
    lambda xp: xp.linspace(0, 9, 4, dtype=np.int32),
    lambda xp: xp.linspace(2, 5, 1),
    lambda xp: xp.linspace(np.float16(0.1), np.float16(777), 5000),
    lambda xp: xp.linspace(np.float16(0), np.float16(3e-7), 10, endpoint=False),
    lambda xp: xp.eye(3, 5, k=-1, dtype=np.int32),
    lambda xp: xp.identity(3, np.float32),
    lambda xp: xp.tri(3, 4, 1),
    lambda xp: xp.asarray([[1, 2], [3, 4]]),
    lambda xp: xp.asarray(2.5, dtype=np.float32),
    lambda xp: xp.fromfunction(lambda i, j: i + 2 * j, (3, 4)),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_arrays_are_numpys(client, number):
    ours = CALLS[number](client.xp)
    assert not ours.committed
    same(ours, CALLS[number](np))


def test_lines_between_arrays_are_numpys(client):
    for arguments in ({"num": 5}, {"num": 4, "axis": -1}, {"num": 4, "endpoint": False}, {"num": 1}):
        start, stop = np.array([0.5, 1, 2]), np.array([[5.0], [2.0]])
        ours, step = client.xp.linspace(start, stop, retstep=True, **arguments)
        expected, step_of_numpy = np.linspace(start, stop, retstep=True, **arguments)
        np.testing.assert_allclose(ours.get(), expected, rtol=1e-15)
        np.testing.assert_array_equal(step, step_of_numpy)
    np.testing.assert_allclose(client.xp.logspace(0, 3, 7).get(), np.logspace(0, 3, 7), rtol=1e-14)


def test_meshes_and_specs_decide_where_arrays_are(client):
    mesh = sc.Mesh(a=4, b=2)
    for x in (
        client.xp.zeros((9, 5), mesh=mesh),
        client.xp.arange(9, mesh=mesh),
        client.xp.eye(9, 5, mesh=mesh),
        client.xp.asarray(np.zeros((9, 5)), mesh=mesh),
    ):
        assert x.committed
        assert (x.mesh.axes, x.spec[0]) == (mesh.axes, ("a", "b"))
    x = client.xp.linspace(0, 1, 11, spec=sc.P("x"))
    assert x.committed
    assert (x.mesh.size, x.spec) == (8, sc.P("x"))
    assert client.xp.ones((4, 6), mesh=mesh, spec=sc.P(None, "b")).spec == sc.P(None, "b")

"""Arrays that `client.xp` creates on the mesh, which equal NumPy's."""

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


def same(ours, expected):
    assert isinstance(ours, sc.RemoteArray)
    expected = np.asarray(expected)
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
    assert ours.get().tobytes() == np.ascontiguousarray(expected).tobytes()


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


def test_arrays_like_another_are_where_it_is(client):
    h = client.put(np.zeros((5, 4), np.float32), mesh=sc.Mesh(x=4), spec=sc.P(None, "x"))
    for ours, expected in (
        (np.zeros_like(h), np.zeros((5, 4), np.float32)),
        (np.ones_like(h, dtype=int), np.ones((5, 4), int)),
        (np.full_like(h, 3), np.full((5, 4), 3, np.float32)),
        (client.xp.empty_like(h, ml_dtypes.bfloat16), np.zeros((5, 4), ml_dtypes.bfloat16)),
    ):
        same(ours, expected)
        assert ours.committed
        assert (ours.mesh.size, ours.spec) == (4, sc.P(None, "x"))
    same(client.xp.zeros_like(h, shape=(2,)), np.zeros(2, np.float32))
    same(client.xp.zeros_like(np.arange(3)), np.zeros(3, int))


def test_meshgrids_are_numpys(client):
    x, y = client.xp.arange(3), client.put(np.linspace(0, 1, 4))
    for options in ({}, {"indexing": "ij"}, {"sparse": True}):
        ours, expected = np.meshgrid(x, y, **options), np.meshgrid(np.arange(3), np.linspace(0, 1, 4), **options)
        for grid, expected_grid in zip(ours, expected, strict=True):
            same(grid, expected_grid)


def test_arrays_on_the_mesh_are_converted_there(client):
    h = client.put(np.arange(6.0), mesh=sc.Mesh(x=2))
    assert client.xp.asarray(h) is h
    assert client.xp.asarray(h, copy=True) is not h
    same(client.xp.asarray(h, dtype=np.int8), np.arange(6, dtype=np.int8))
    assert client.xp.asarray(h, spec=sc.P(None)).spec == sc.P(None)
    assert client.xp.asarray(h, mesh=sc.Mesh(x=4)).mesh.size == 4
    with pytest.raises(ValueError, match="needs a copy"):
        client.xp.asarray(h, dtype=np.int8, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        client.xp.asarray([1, 2], copy=False)
    same(client.xp.full(3, client.xp.asarray(2.5)), np.full(3, 2.5))
    same(client.xp.arange(client.xp.asarray(4)), np.arange(4))


def test_wrong_arguments_are_refused(client):
    with pytest.raises(ValueError, match="the only device is 'mesh'"):
        client.xp.zeros(3, device="cpu")
    with pytest.raises(ZeroDivisionError, match="step is 0"):
        client.xp.arange(0, 3, 0)
    with pytest.raises(ValueError, match="num=-1"):
        client.xp.linspace(0, 1, -1)
    with pytest.raises(OverflowError):
        client.xp.full(3, 300, np.int8)
    with pytest.raises(sc.InvalidParameterError):
        client.xp.zeros((2, -3))
    assert client.xp.zeros(3, device="mesh").shape == (3,)

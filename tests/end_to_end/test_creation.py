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

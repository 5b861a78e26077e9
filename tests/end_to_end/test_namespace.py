"""Products, broadcasting and the keywords of the standard, of arrays on the mesh, as NumPy computes them."""

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(3)
X, Y = RANDOM.normal(size=(13, 6)), RANDOM.normal(size=(6, 13))
Z = RANDOM.normal(size=(5, 3)) + 1j * RANDOM.normal(size=(5, 3))


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module")
def put(client):
    arrays = {id(x): client.put(x, mesh=sc.Mesh(x=8)) for x in (X, Y, Z)}
    return lambda x: arrays[id(x)]


def same(ours, expected):
    assert isinstance(ours, sc.RemoteArray)
    assert (ours.shape, ours.dtype) == (np.shape(expected), expected.dtype)
    np.testing.assert_allclose(ours.get(), expected, rtol=1e-12, atol=1e-12)


CALLS = [
    lambda put: np.tensordot(put(X), put(Y), 1),
    lambda put: np.tensordot(put(X), put(X), axes=([0, 1], [0, 1])),
    lambda put: np.inner(put(X), put(X)),
    lambda put: np.outer(put(X), put(Y)[0]),
    lambda put: np.vdot(put(Z), put(Z)),
    lambda put: np.vecdot(put(Z), put(Z)),
    lambda put: np.matvec(put(X), put(X)[0]),
    lambda put: np.matvec(put(Z)[:, None], put(X)[:5, :3]),
    lambda put: np.vecmat(put(Z), put(Z)[:, :, None]),
    lambda put: np.vecmat(put(X)[:, 0] > 0, put(X) > 0),
    lambda put: np.vecmat(put(X)[:0, 0], put(X)[:0]),
    lambda put: np.rollaxis(put(X), 1),
    lambda put: np.rollaxis(put(X)[None], -1, -1),
    lambda put: np.rollaxis(put(X), 0, 2),
    lambda put: np.bitwise_not(put(X) > 0),
    lambda put: np.kron(put(X), put(Z)),
    lambda put: np.cross(put(Z), put(Z)[::-1]),
    lambda put: np.broadcast_arrays(put(X), put(Y)[0, :6])[1],
    lambda put: np.unstack(put(X), axis=1)[2],
    lambda put: np.var(put(X), axis=0, ddof=1),
    lambda put: np.std(put(X), correction=1),
    lambda put: np.sort(put(X), axis=0, stable=True),
    lambda put: np.astype(put(X), np.float32),
    lambda put: np.repeat(put(X), np.arange(6), axis=1),
    lambda put: np.repeat(put(X), 2, 0),
    lambda put: np.reshape(put(X), (6, 13), copy=True),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_functions_of_numpy_run_on_the_mesh(put, number):
    same(CALLS[number](put), CALLS[number](lambda x: x))


@pytest.mark.parametrize("x", [[3, 1, 2, 3, 1, 2, 0], [0.0, np.nan, -0.0, 1, -np.inf, np.nan, 1], [1j, 2, np.nan, 1]])
def test_descending_sorts_keep_the_sequence_of_equal_elements_and_nan_is_last(client, x):
    x = np.array(x)
    h = client.put(x, mesh=sc.Mesh(x=2))
    expected, order = -np.sort(-x, stable=True), np.argsort(-x, stable=True)
    same(client.xp.sort(h, descending=True), expected)
    same(client.xp.argsort(h, descending=True), order)
    if np.lib.NumpyVersion(np.__version__) < "2.5.0":
        with pytest.raises(TypeError, match="descending"):
            h.sort(descending=True)
        return
    same(np.sort(h, descending=True), np.sort(x, descending=True))
    same(np.argsort(h, stable=True, descending=True), order)
    same(h.argsort(descending=True), order)
    with pytest.raises(ValueError, match="can't be provided at the same time"):
        h.sort(kind="stable", descending=True)
    h.sort(descending=True)
    same(h, expected)


def test_arrays_say_where_they_are(client, put):
    h = put(X)
    assert h.device == client.xp.__array_namespace_info__().default_device()
    assert h.to_device(h.device) is h
    with pytest.raises(ValueError, match="the only device is 'mesh'"):
        h.to_device("cpu")
    assert client.xp.from_dlpack(h) is h
    assert client.xp.astype(h, np.float64, copy=False) is h
    assert np.shape(h) == X.shape
    assert np.result_type(h, np.float32) == np.float64


def test_dlpack_has_a_copy(server):
    with sc.connect(server.address) as copying:
        h = copying.put(X)
        assert h.__dlpack_device__() == (1, 0)
        np.testing.assert_array_equal(np.from_dlpack(h), X)
        with pytest.raises(BufferError, match="the values are on the mesh"):
            h.__dlpack__(copy=False)

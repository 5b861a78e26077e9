"""Functions that change their first argument, and `out=` an array on the mesh: they change it as NumPy does."""

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(11)
X = RANDOM.normal(size=(13, 6))
MASK = RANDOM.random((13, 6)) < 0.4
MESH = sc.Mesh(x=8)


@pytest.fixture(scope="module")
def put(server):
    """Puts arrays on the mesh, for a client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x, spec=None: client.put(x, mesh=MESH, spec=spec)


def test_several_results_go_to_several_arrays(put):
    fraction, integral = put(np.zeros(13)), put(np.zeros(13))
    for out in ((fraction, integral), (None, integral), (fraction, None)):
        results = np.modf(put(X[:, 0] * 3), out=out)
        for result, target, expected in zip(results, out, np.modf(X[:, 0] * 3), strict=True):
            assert target is None or result is target
            np.testing.assert_allclose(result.get(), expected)


def test_results_of_arrays_of_this_process_go_to_the_mesh(put):
    h = put(np.zeros((13, 6)))
    assert np.add(X, X, out=h) is h
    np.testing.assert_array_equal(h.get(), X + X)


def test_arrays_of_this_process_take_values_from_the_mesh(server):
    with sc.connect(server.address) as client:
        h, mask, at = (client.put(x, mesh=MESH) for x in (X, MASK, np.array([0, 5])))
        for write in (
            lambda x, h, m, i: np.copyto(x, h, where=m),
            lambda x, h, m, i: np.putmask(x, m, h),
            lambda x, h, m, i: np.place(x, m, h),
            lambda x, h, m, i: np.put(x, i, h),
            lambda x, h, m, i: np.fill_diagonal(x, h),
            lambda x, h, m, i: np.add(h, 1, out=x, where=m),
            lambda x, h, m, i: np.add.at(x, i, h[0]),
        ):
            ours, expected = np.zeros(X.shape), np.zeros(X.shape)
            write(ours, h, mask, at)
            write(expected, X, MASK, np.array([0, 5]))
            np.testing.assert_array_equal(ours, expected)


def test_indices_on_the_mesh_beyond_the_end_are_refused_as_the_array_is_read(put):
    h = put(X)
    np.put(h, put(np.array([99])), 1.0)
    with pytest.raises(IndexError):
        h.get()

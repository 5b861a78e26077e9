"""Linear algebra of arrays on the mesh by NumPy's functions, which equal NumPy's results."""

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(18)
X = RANDOM.normal(size=(3, 4, 4)) + 3 * np.eye(4)


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


def test_decompositions_have_numpys_names(client):
    h = client.put(X, mesh=sc.Mesh(x=4))
    q, r = np.linalg.qr(h)
    np.testing.assert_allclose((q @ r).get(), X, atol=1e-12)
    svd = np.linalg.svd(h, full_matrices=False)
    np.testing.assert_allclose((svd.U * svd.S[:, None] @ svd.Vh).get(), X, atol=1e-12)
    symmetric = X + np.swapaxes(X, 1, 2)
    eigh = np.linalg.eigh(client.put(symmetric, mesh=sc.Mesh(x=4)))
    np.testing.assert_allclose(eigh.eigenvalues.get(), np.linalg.eigvalsh(symmetric), atol=1e-12)
    assert eigh.eigenvectors.spec == sc.P("x", None, None)
    assert np.linalg.slogdet(h)._fields == np.linalg.slogdet(X)._fields


def test_the_maximum_norm_of_no_elements_is_0(client):
    assert np.linalg.vector_norm(client.put(np.zeros(0)), ord=np.inf) == 0


def test_singular_triangles_and_other_transposes_are_refused(client):
    h = client.put(np.triu(np.ones((4, 4)), 1), mesh={"x": 2})
    with pytest.raises(np.linalg.LinAlgError, match="zero on the diagonal"):
        client.xp.linalg.solve_triangular(h, np.ones(4)).get()
    with pytest.raises(ValueError, match="trans='X'"):
        client.xp.linalg.solve_triangular(h, np.ones(4), trans="X")

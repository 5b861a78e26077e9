"""The functions of `client.xp.special` equal SciPy's over sharded arrays."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same

scipy = pytest.importorskip("scipy.special")

X = np.random.default_rng(10).normal(size=(13, 6))


def test_derivatives_of_traced_functions(strict_client):
    special = strict_client.xp.special
    slope = strict_client.grad(lambda x: (special.expit(x) + special.erf(x)).sum())(strict_client.put(X, mesh=MESH))
    logistic = scipy.expit(X)
    same(slope, logistic * (1 - logistic) + 2 / np.sqrt(np.pi) * np.exp(-(X**2)))
    x = np.abs(X) + 0.1
    same(strict_client.grad(lambda x: special.gammaln(x).sum())(strict_client.put(x, mesh=MESH)), scipy.digamma(x))


def test_complex_numbers_are_refused(strict_client):
    h = strict_client.put(X * 1j, mesh=MESH)
    for name in ("expit", "erf", "gammaln", "logsumexp"):
        with pytest.raises(TypeError):
            getattr(strict_client.xp.special, name)(h).get()


def test_scipys_ufuncs_run_on_the_mesh_or_are_refused_by_their_names(strict_client):
    x = strict_client.put(X, mesh=MESH)
    same(scipy.erf(x), scipy.erf(X))
    with pytest.raises(TypeError, match=r"scipy\.special\.j0 does not run on the mesh"):
        scipy.j0(x)

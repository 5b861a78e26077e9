"""NumPy's functions of polynomials, of coefficients and coordinates on the mesh, equal NumPy's."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same

RANDOM = np.random.default_rng(3)
V, X = RANDOM.normal(size=13), RANDOM.normal(size=(13, 3))
I = RANDOM.integers(-5, 6, (13,))  # noqa: E741


def test_polynomials_of_traced_functions(strict_client):
    def values(x, p):
        return np.polyval(p, x), np.polyadd(p, [1.0, 2]), np.polyder(np.polyint(p)), np.vander(x, 3)

    same(strict_client.jit(values)(strict_client.put(V, mesh=MESH), I[:3]), values(V, I[:3]))


def test_wrong_arguments_are_refused(strict_client):
    h = strict_client.put(X, mesh=MESH)
    for call, error in (
        (np.vander, ValueError),
        (lambda x: np.vander(x[0], -1), ValueError),
        (np.poly, ValueError),
        (np.roots, ValueError),
        (lambda x: np.polymul(x, [1]), ValueError),
        (lambda x: np.polyder(x, -1), ValueError),
        (lambda x: np.polyint(x, -1), ValueError),
        (lambda x: np.polyint(x[0], 3, k=[1, 2]), ValueError),
        (lambda x: np.polyfit(x, x, 1), TypeError),
        (lambda x: np.polyfit(x[0], [1, 2], 1), TypeError),
        (lambda x: np.polyfit(x[0], [1, 2, 3], -1), ValueError),
        (lambda x: np.polyfit(x[0], [1, 2, 3], 1, w=[1]), TypeError),
        (lambda x: np.polyfit(x[0], [1, 2, 3], 2, cov=True), ValueError),
    ):
        for x in (X, h):
            with pytest.raises(error):
                call(x)

"""NumPy's functions of indices and of blocks equal NumPy's over arrays on the mesh."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same

RANDOM = np.random.default_rng(8)
I, X = RANDOM.integers(-5, 6, (13, 6)), RANDOM.normal(size=(13, 6))  # noqa: E741


def test_positions_of_traced_functions(strict_client):
    def function(x):
        rows = np.choose(x, [x, x + 1], mode="wrap"), np.ravel_multi_index((x, x), (9, 9), mode="clip")
        return (
            *rows,
            *np.ix_(x[0], x[1]),
            np.block([[x], [x]]),
            np.correlate(x[0], x[1], "full"),
            np.diag_indices_from(x[:6]),
        )

    same(strict_client.jit(function)(strict_client.put(I, mesh=MESH)), function(I))


def test_wrong_arguments_are_refused(strict_client):
    h, i = strict_client.put(X, mesh=MESH), strict_client.put(I, mesh=MESH)
    for call, error in (
        (lambda x, i: np.choose(i, [1, 2]), ValueError),
        (lambda x, i: np.choose(i, []), ValueError),
        (lambda x, i: np.choose(i, [i, i], mode="x"), ValueError),
        (lambda x, i: np.choose(x, [1, 2]), TypeError),
        (lambda x, i: np.ravel_multi_index((i, i), (9, 9)), ValueError),
        (lambda x, i: np.ravel_multi_index((i,), (9, 9)), ValueError),
        (lambda x, i: np.ravel_multi_index((x,), (9,)), TypeError),
        (lambda x, i: np.ravel_multi_index((i, i), (2**62, 2), mode="clip"), ValueError),
        (lambda x, i: np.ravel_multi_index((i, i), (9, 0), mode="clip"), ValueError),
        (lambda x, i: np.unravel_index(i, (2**62, 2)), ValueError),
        (lambda x, i: np.unravel_index(i * 0, ()), ValueError),
        (lambda x, i: np.diag_indices_from(x), ValueError),
        (lambda x, i: np.diag_indices_from(x[0]), ValueError),
        (lambda x, i: np.ix_(i[0], i), ValueError),
        (lambda x, i: np.block([[x], x]), ValueError),
        (lambda x, i: np.block([x, []]), ValueError),
        (lambda x, i: np.block([(x, x)]), TypeError),
        (lambda x, i: np.correlate(x, x), ValueError),
        (lambda x, i: np.correlate(x[0], x[0, :0]), ValueError),
        (lambda x, i: np.histogramdd(x, bins=(2, 3)), ValueError),
    ):
        for arrays in ((X, I), (h, i)):
            with pytest.raises(error):
                call(*arrays)

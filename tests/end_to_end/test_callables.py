"""NumPy's functions that take functions of the caller equal NumPy's over arrays on the mesh."""

import numpy as np
import pytest
from end_to_end.same_results import MESH, same

RANDOM = np.random.default_rng(6)
X, V = RANDOM.normal(size=(13, 6)), RANDOM.normal(size=13)


def test_callables_of_traced_functions(strict_client):
    def function(x):
        vectors = np.apply_along_axis(lambda v: v / v.max(), 1, x)
        return vectors, np.piecewise(x, [x < 0], [np.abs, 1]), np.apply_over_axes(np.max, x, (0, 1))

    same(strict_client.jit(function)(strict_client.put(X, mesh=MESH)), function(X))


def test_wrong_arguments_are_refused(strict_client):
    h = strict_client.put(X, mesh=MESH)
    for call, error in (
        (lambda x: np.apply_along_axis(np.sum, 2, x), np.exceptions.AxisError),
        (lambda x: np.apply_along_axis(np.sum, 0, x[:, :0]), ValueError),
        (lambda x: np.apply_over_axes(lambda a, axis: a[0, 0], x, [0]), ValueError),
        (lambda x: np.piecewise(x, [x < 0], [1, 2, 3]), ValueError),
    ):
        for x in (X, h):
            with pytest.raises(error):
                call(x)

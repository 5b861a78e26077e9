"""The tests of `test_differences.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_differences import SHARDED

pytestmark = pytest.mark.long


def test_the_family_meets_numpy(client):
    x = np.random.default_rng(7).standard_normal((33, 10))
    np.testing.assert_array_equal(client.shift(x, -2, axis=0, mode="periodic", **SHARDED).array, np.roll(x, -2, 0))
    filled = client.shift(x, 3, axis=0, fill=np.nan, **SHARDED).array
    np.testing.assert_array_equal(filled, np.concatenate([np.full((3, 10), np.nan), x[:-3]]))
    result = client.gradient(x, 0.5, np.arange(10.0) ** 2, edge_order=2, **SHARDED)
    for derivative, numpys in zip(result.arrays, np.gradient(x, 0.5, np.arange(10.0) ** 2, edge_order=2), strict=True):
        np.testing.assert_allclose(derivative, numpys, rtol=1e-12, atol=1e-12)
    rolled = sum(np.roll(x, 1, axis) - 2 * x + np.roll(x, -1, axis) for axis in (0, 1))
    laplacian = client.laplacian(x, **SHARDED)
    np.testing.assert_allclose(laplacian.array, rolled, rtol=1e-12, atol=1e-12)
    assert laplacian.plan.strategy == "halo"

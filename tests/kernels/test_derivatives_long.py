"""The tests of `test_derivatives.py` that take long."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.graphs import GraphWriter
from kernels.test_derivatives import gradient

pytestmark = pytest.mark.long


def test_equal_elements_share_a_gradient(run):
    x = np.array([[3.0, 1, 3], [0, 3, 2]])
    write = GraphWriter()
    total = write("max", write.x(0))
    for result in (write("min", write.x(0), axis=1), write("maximum", write.x(0), write.x(1))):
        total = write("add", total, write("sum", result))
    (slope,) = gradient(run, write, total, x, np.full(3, 3.0))
    expected = np.where(x == 3, 1 / 3 + 1 / 2, 0) + np.array([[0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(slope, expected, rtol=1e-12)

"""The tests of `test_derivatives.py` that take long."""

import numpy as np
import pytest
from kernels import test_derivatives as short
from kernels.conftest import with_cases
from kernels.derivative_cases import CASES
from kernels.graphs import GraphWriter
from kernels.test_derivatives import KERNELS, MESHES, gradient, numeric  # noqa: F401  # the fixture

pytestmark = pytest.mark.long


def strategies_of(kernel):
    """Each strategy by its name; no name if there is one."""
    return [strategy.name for strategy in kernel.strategies] if len(kernel.strategies) > 1 else [""]


def calls_on(meshes):
    """The calls with derivatives: the name, which of its calls, which of the meshes, and the strategy."""
    return [
        (name, number, mesh, strategy)
        for name, calls in CASES.items()
        for number in range(len(calls))
        for mesh in range(len(meshes))
        for strategy in strategies_of(KERNELS[name])
    ]


test_gradients_are_those_of_finite_differences = with_cases(
    short.test_gradients_are_those_of_finite_differences, {"name, number, mesh, strategy": calls_on(MESHES)}
)


def test_equal_elements_share_a_gradient(run):
    x = np.array([[3.0, 1, 3], [0, 3, 2]])
    write = GraphWriter()
    total = write("max", write.x(0))
    for result in (write("min", write.x(0), axis=1), write("maximum", write.x(0), write.x(1))):
        total = write("add", total, write("sum", result))
    (slope,) = gradient(run, write, total, x, np.full(3, 3.0))
    np.testing.assert_allclose(slope, np.where(x == 3, 1 / 3 + 1 / 2, 0) + np.array([[0, 1, 0], [1, 0, 0]]), rtol=1e-12)

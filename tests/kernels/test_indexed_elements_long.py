"""Elements at indices in every layout, updates of equal indices, and indices that are not zero."""

import numpy as np
import pytest
from kernels import test_indexed_elements as short
from kernels.conftest import with_cases
from kernels.test_indexed_elements import KERNELS, LAYOUTS, SHAPE

pytestmark = pytest.mark.long

test_elements_are_taken_and_put = with_cases(short.test_elements_are_taken_and_put, {"layout": LAYOUTS})


@pytest.mark.parametrize(
    ("mode", "function"),
    [*zip(("add", "multiply", "min", "max"), (np.add, np.multiply, np.minimum, np.maximum), strict=True)],
)
def test_updates_at_equal_indices_add_up(run, values, mode, function):
    x, indices, new = values.normal(SHAPE), values.random.integers(-5, 5, (7, 1)), np.asarray(2.0)
    expected = x.copy()
    function.at(expected, (indices,), new)
    how = {"mesh": {"x": 3}, "in_specs": [(None, None, "x")], "axes": (0,), "mode": mode}
    np.testing.assert_allclose(run(KERNELS["put_at"], x, new, indices, **how), expected, rtol=1e-13)


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS[::2])
def test_indices_that_are_not_zero(run, values, same, mesh, spec):
    x = np.round(values.normal(SHAPE))
    x[1, 2, 3], x[0, 0, :2] = np.nan, (0.0, -0.0)
    expected = np.flatnonzero(x)
    how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan}
    same(run(KERNELS["flatnonzero"], x, **how, size=len(expected)), expected)
    assert run.resolve(KERNELS["flatnonzero"], x, mesh={"x": 8}, size=9).strategy.name == "one_device"

"""The tests of `test_exchanges.py` that take long."""

import numpy as np
import pytest
from kernels.test_exchanges import KERNELS, LAYOUTS
from kernels.test_movement import assert_same_bits
from pairs import pairs_of

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("layout", "indices"), pairs_of(range(3), [-3, [5, -61, 60, 5], [[0], [33]]]))
def test_few_rows_are_taken(run, values, layout, indices):
    mesh, spec = LAYOUTS[layout]
    x, where = values.normal((61, 3)), np.asarray(indices)
    how = {"mesh": mesh, "in_specs": [(*spec, None), None], "axis": 0}
    assert run.resolve(KERNELS["take"], x, where, **how).strategy.name == "exchange"
    assert_same_bits(run(KERNELS["take"], x, where, **how, padding=7), np.asarray(np.take(x, where, 0)))
    if where.ndim == 2:
        along = np.broadcast_to(where, (2, 3))
        how["in_specs"] = [(*spec, None), (None, None)]
        assert run.resolve(KERNELS["take_along_axis"], x, along, **how).strategy.name == "exchange"
        taken = run(KERNELS["take_along_axis"], x, along, **how, padding=7)
        assert_same_bits(taken, np.take_along_axis(x, along, 0))


def test_every_bit_is_taken_from_other_devices(run, values, dtype):
    x, indices = values.any((13, 2), dtype), np.array([3, -1, 0, 12])
    assert_same_bits(run(KERNELS["take"], x, indices, mesh={"x": 3}, axis=0, strategy="exchange"), x[indices])

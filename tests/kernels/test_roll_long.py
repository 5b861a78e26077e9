"""The tests of `test_roll.py` that take long."""

import numpy as np
import pytest
from kernels.test_roll import GRID, ROLL, X

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("shift", "axis"),
    [
        *(((1, -2), (0, 1)), (3, (0, 1)), ((1, 2, -30), (1, 0, 1)), ((1, 2), 0), (1, ()), ((), 0), (5, 2)),
        *((7, None), ((-3, 1000), None), (-1, -2)),
    ],
)
def test_elements_move_round(run, same, shift, axis):
    how = {"shift": shift, "axis": axis, "padding": -1}
    same(run(ROLL, X, **how, **GRID), np.roll(X, shift, axis))


def test_narrow_floats_move_bit_for_bit_along_several_axes(run, values):
    x = values.subnormal((13, 9), np.dtype(np.float16))
    for strategy in ("halo", "gspmd"):
        how = {"shift": (-1, 3), "axis": (1, 0), "strategy": strategy, "mesh": {"a": 4, "b": 2}}
        assert run(ROLL, x, in_specs=[("a", "b")], **how).tobytes() == np.roll(x, (-1, 3), (1, 0)).tobytes()

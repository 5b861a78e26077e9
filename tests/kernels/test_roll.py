"""`roll` is np.roll, bit for bit, on every mesh."""

import numpy as np
import pytest

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils.roll import Roll
from shardcall_server.kernels.stencils.shift import Shift

ROLL, SHIFT = Roll(), Shift()
GRID = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b", None)]}
X = np.arange(13 * 9 * 2).reshape(13, 9, 2)
MATRIX = ArrayType((64, 8), np.dtype(np.float32))


@pytest.mark.parametrize("shape", [(), (5,), (0, 3)])
def test_scalars_vectors_and_nothing(run, same, shape):
    x = np.arange(int(np.prod(shape))).reshape(shape)
    same(run(ROLL, x, shift=7, mesh={"x": 8}), np.roll(x, 7))


def test_a_shift_along_several_axes_fills_all_that_nothing_moves_to(run, same):
    expected = np.full_like(X, -5)
    expected[2:, :-3] = X[:-2, 3:]
    for strategy in ("halo", "gspmd"):
        how = {"shift": (2, -3), "axis": (0, 1), "strategy": strategy, "padding": 99}
        same(run(SHIFT, X, np.int8(-5), **how, **GRID), expected)


def test_equal_rolls_are_one_problem(run):
    def problem(shift, axis):
        return run.resolve(ROLL, MATRIX, shift=shift, axis=axis).problem

    assert problem((1, 2), (0, 1)) == problem((2, 65), (1, 0)) == problem((0, 2, 1), (0, 1, 0))
    assert problem(3, None) == problem((1, 514), None)


@pytest.mark.parametrize(
    ("kernel", "parameters", "reason", "field", "says"),
    [
        (
            ROLL,
            {"shift": (1, 2, 3), "axis": (0, 1)},
            Reason.INVALID_PARAMETER,
            "shift",
            "3 shifts for 2 axes",
        ),
        (ROLL, {"shift": 1, "axis": (0, 2)}, Reason.AXIS_OUT_OF_RANGE, "axis", "from -2 to 1"),
        (ROLL, {"shift": 1, "axis": "0"}, Reason.PARAMETER_TYPE, "axis", "an integer"),
        (ROLL, {"shift": 1.5}, Reason.PARAMETER_TYPE, "shift", "an integer"),
        (ROLL, {"shift": 1, "strategy": "halo"}, Reason.STRATEGY_UNSUPPORTED, "strategy", "these can: gspmd"),
        (SHIFT, {"shift": 1, "axis": (0, -2)}, Reason.INVALID_PARAMETER, "axis", "twice"),
        (SHIFT, {"shift": 1, "axis": None}, Reason.PARAMETER_TYPE, "axis", "an integer"),
    ],
)
def test_what_cannot_be_is_refused(refused, kernel, parameters, reason, field, says):
    error = refused(kernel, MATRIX, **parameters)
    assert (error.reason, error.field) == (reason, field)
    assert says in error.message

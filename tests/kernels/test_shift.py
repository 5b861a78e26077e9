"""`shift` is np.roll, or np.roll with what came round filled, bit for bit, on every mesh."""

import ml_dtypes
import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils.shift import Shift

SHIFT = Shift()
X8 = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
F32 = np.dtype(np.float32)
MATRIX = ArrayType((64, 8), F32)


def expected(x, shift, axis, mode, fill=0):
    """The definition, row by row."""
    if mode == "periodic":
        return np.roll(x, shift, axis)
    result = np.full_like(x, np.asarray(fill).astype(x.dtype))
    rows, size = np.moveaxis(x, axis, 0), x.shape[axis]
    for i in range(size):
        if 0 <= i - shift < size:
            np.moveaxis(result, axis, 0)[i] = rows[i - shift]
    return result


def check(run, same, x, layout, strategy, shift, axis, mode):
    fill = np.float32(7) if mode == "fill" else None
    result = run(SHIFT, x, fill, padding=np.nan, strategy=strategy, shift=shift, axis=axis, mode=mode, **layout)
    same(result, expected(x, shift, axis, mode, 7))


CASES = [  # rows, shift: within a neighbour, beyond it, beyond all
    *[(64, shift) for shift in (0, 1, -3, 8, 20)],
    *[(61, shift) for shift in (2, -2, -11, 100)],
    *[(9, shift) for shift in (-1, 3)],
]


@pytest.mark.parametrize(("case", "mode"), pairs_of(CASES, ["fill", "periodic"]))
def test_rows_move_by_the_requested_shift(run, values, same, case, mode):
    rows, shift = case
    check(run, same, values.normal((rows, 3)), X8, "halo", shift, 0, mode)


def test_every_element_type_comes_through(run, values, same, dtype):
    x, fill = values.any((24, 3), dtype), values.any((1,), dtype).reshape(())
    same(run(SHIFT, x, fill, shift=2, axis=0, **X8), expected(x, 2, 0, "fill", fill))


@pytest.mark.parametrize(("mode", "shift"), [("fill", 2), ("periodic", -2), ("periodic", 62)])
def test_a_near_shift_sends_its_rows_once(run, mode, shift):
    text = run.program(SHIFT, MATRIX, shift=shift, axis=0, mode=mode, strategy="halo", **X8).compiled.as_text()
    assert text.count(" collective-permute(") == 1
    assert "f32[2,8]{1,0} collective-permute(" in text
    assert not any(word in text for word in ("all-gather", "all-to-all", "all-reduce"))


def test_a_far_shift_sends_every_row_once(run):
    text = run.program(SHIFT, MATRIX, shift=20, axis=0, strategy="halo", **X8).compiled.as_text()
    assert text.count(" collective-permute(") == 2
    assert not any(word in text for word in ("all-gather", "all-to-all", "all-reduce"))


def test_equal_shifts_are_one_problem(run):
    def problem(shift, mode):
        return run.resolve(SHIFT, MATRIX, shift=shift, axis=0, mode=mode).problem

    assert problem(-1, "periodic") == problem(63, "periodic") == problem(127, "periodic")
    assert problem(64, "fill") == problem(10**12, "fill")
    assert problem(-1, "fill") != problem(63, "fill")


@pytest.mark.parametrize(
    ("operands", "parameters", "reason", "field", "says"),
    [
        ([ArrayType((), F32)], {}, Reason.INVALID_OPERAND, "x", "a scalar"),
        ([MATRIX], {"axis": 2}, Reason.AXIS_OUT_OF_RANGE, "axis", "from -2 to 1"),
        ([MATRIX], {"shift": 1.5}, Reason.PARAMETER_TYPE, "shift", "an integer"),
        ([MATRIX], {"mode": "wrap"}, Reason.INVALID_PARAMETER, "mode", "give 'fill' or 'periodic'"),
        ([MATRIX, ArrayType((2,), F32)], {}, Reason.INVALID_OPERAND, "fill", "give a scalar"),
        ([MATRIX, ArrayType((), F32)], {"mode": "periodic"}, Reason.INVALID_OPERAND, "fill", "leave out one of them"),
        (
            [ArrayType((8,), np.dtype("uint8")), ArrayType((), F32)],
            {},
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            "fill",
            "fill is float32 and x uint8",
        ),
    ],
)
def test_what_cannot_be_is_refused(refused, operands, parameters, reason, field, says):
    error = refused(SHIFT, *operands, **{"shift": 1} | parameters)
    assert (error.reason, error.field) == (reason, field)
    assert says in error.message


def test_a_fill_may_be_of_a_type_that_x_can_hold(run, same):
    for of_x, of_fill in [("float32", "int64"), ("uint8", "int64"), (ml_dtypes.bfloat16, "float64")]:
        x = np.arange(16).astype(of_x)
        fill = np.asarray(3).astype(of_fill)
        same(run(SHIFT, x, fill, shift=-9, mesh={"x": 8}), expected(x, -9, 0, "fill", 3))


def test_halo_serves_results_sharded_as_x(refused):
    error = refused(SHIFT, MATRIX, shift=1, out_specs=[(None, "x")], strategy="halo", **X8)
    assert error.reason == Reason.STRATEGY_UNSUPPORTED
    assert "these can: gspmd, auto" in error.message

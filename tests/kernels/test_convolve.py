"""`convolve` is np.convolve along an axis, on every mesh: exactly for integers, within the stated bound for floats."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.functions.stencils import CONVOLVE_MODES
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils.convolve import Convolve

CONVOLVE = Convolve()
LAYOUTS = [  # mesh, spec of a matrix
    ({"x": 1}, ("x", None)),
    ({"x": 8}, ("x", None)),
    ({"x": 8}, (None, "x")),
    ({"a": 4, "b": 2}, ("a", "b")),
    ({"a": 2, "b": 4}, (("b", "a"), None)),
]
SIZES = [(32, 3), (29, 4), (9, 6), (3, 5)]  # rows of x, elements of v
TABLE = list(itertools.product(LAYOUTS, SIZES, CONVOLVE_MODES))
SHORT = TABLE[::7]  # each layout, size and mode


def along(x, v, mode, axis):
    return np.apply_along_axis(np.convolve, axis, x, v, mode)


def check(run, values, same, layout, sizes, mode, strategy):
    (mesh, spec), (count, length) = layout, sizes
    x, v = (values.random.integers(-(2**62), 2**62, shape) for shape in ((count, 3), length))
    how = {"mesh": mesh, "in_specs": [spec], "mode": mode, "axis": 0, "strategy": strategy}
    same(run(CONVOLVE, x, v, **how), along(x, v, mode, 0))


@pytest.mark.parametrize(("layout", "sizes", "mode"), SHORT)
def test_every_mesh_gives_numpys_result(run, values, same, layout, sizes, mode):
    check(run, values, same, layout, sizes, mode, "halo")


@pytest.mark.parametrize(("layout", "sizes", "mode"), TABLE[::11])
def test_the_compilers_partition_gives_numpys_result(run, values, same, layout, sizes, mode):
    check(run, values, same, layout, sizes, mode, "gspmd")


@pytest.mark.parametrize(
    ("case", "strategy"), pairs_of([("full", 9, 4), ("same", 17, 3), ("valid", 17, 4)], ["halo", "gspmd"])
)
def test_padding_reaches_no_element(run, values, same, case, strategy):
    mode, count, length = case
    x, v = values.small((count,), np.dtype(float)), values.small((length,), np.dtype(float))
    how = {"mesh": {"x": 8}, "in_specs": [("x",), ("x",)], "mode": mode, "strategy": strategy}
    same(run(CONVOLVE, x, v, padding=np.nan, **how), np.convolve(x, v, mode))


def test_only_rows_beside_the_blocks_move(run):
    x, v = (ArrayType(shape, np.dtype(np.float64)) for shape in ((64, 32), (3,)))
    sharded = run.program(CONVOLVE, x, v, mesh={"x": 8}, axis=0, mode="same")
    assert sharded.text.count(" collective-permute(") == 2
    assert not any(word in sharded.text for word in (" all-gather(", " all-to-all(", " all-reduce("))
    unsharded = run.program(CONVOLVE, x, v, mesh={"x": 8}, axis=1)
    assert not any(word in unsharded.text for word in (" all-gather(", " all-to-all(", " collective-permute("))


def test_a_result_sharded_otherwise_is_left_to_the_compiler(run, values, same):
    x, v = (values.random.integers(-9, 9, shape) for shape in ((9, 3), 4))
    how = {"mesh": {"x": 8}, "axis": 0, "out_specs": [(None, "x")]}
    assert run.resolve(CONVOLVE, x, v, **how).strategy.name == "gspmd"
    same(run(CONVOLVE, x, v, **how), along(x, v, "full", 0))


def test_modes_have_numpys_numbers(run, values):
    x, v = values.normal((9,)), values.normal((4,))
    for mode in (0, 1, 2):
        named = run.resolve(CONVOLVE, x, v, mode=mode).problem.parameters.mode
        np.testing.assert_array_equal(np.convolve(x, v, named), np.convolve(x, v, mode))


def f64(*shape):
    return ArrayType(shape, np.dtype(np.float64))


@pytest.mark.parametrize(
    ("x", "v", "how", "reason", "field", "parts"),
    [
        (f64(), f64(3), {}, Reason.INVALID_OPERAND, "x", ["scalar", "one axis or more"]),
        (f64(9), f64(3, 1), {}, Reason.INVALID_OPERAND, "v", ["(3, 1)", "one axis"]),
        (f64(9), f64(), {}, Reason.INVALID_OPERAND, "v", ["()", "one axis"]),
        (f64(0), f64(3), {}, Reason.INVALID_SHAPE, "x", ["empty", "at least one"]),
        (f64(9), f64(0), {}, Reason.INVALID_SHAPE, "v", ["empty", "at least one"]),
        (f64(9), f64(3), {"axis": 1}, Reason.AXIS_OUT_OF_RANGE, "axis", ["axis=1", "1 axes", "-1 to 0"]),
        (f64(9), f64(3), {"mode": "sane"}, Reason.INVALID_PARAMETER, "mode", ["'sane'", "did you mean 'same'"]),
        (f64(9), f64(3), {"mode": 1.0}, Reason.PARAMETER_TYPE, "mode", ["mode=1", "a string"]),
        (f64(9), f64(3), {"mode": True}, Reason.PARAMETER_TYPE, "mode", ["mode=True", "a string"]),
        (f64(9), f64(3), {"mode": 3}, Reason.INVALID_PARAMETER, "mode", ["mode=3", "0, 1 or 2"]),
        (
            ArrayType((9,), np.dtype(ml_dtypes.float8_e5m2)),
            ArrayType((9,), np.dtype(ml_dtypes.float8_e4m3fn)),
            {},
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            "v",
            ["float8_e5m2", "float8_e4m3fn", "float32"],
        ),
        (
            f64(9, 3),
            f64(3),
            {"mesh": {"x": 8}, "strategy": "halo", "out_specs": [(None, "x")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            ["P('x', None)", "P(None, 'x')", "gspmd"],
        ),
    ],
)
def test_refusals_say_what_to_do(refused, x, v, how, reason, field, parts):
    error = refused(CONVOLVE, x, v, **how)
    assert (error.reason, error.field) == (reason, field)
    assert all(part in error.message for part in parts), error.message


def test_no_columns_is_no_error(run, same):
    same(run(CONVOLVE, np.zeros((9, 0)), np.ones(3), mesh={"x": 8}, axis=0), np.zeros((11, 0)))

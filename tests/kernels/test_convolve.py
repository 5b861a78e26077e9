"""`convolve` is np.convolve along an axis, on every mesh: exactly for integers, within the stated bound for floats."""

import itertools

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.functions.stencils import CONVOLVE_MODES
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils.convolve import MAX_UNROLLED, Convolve

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
COMPLETE = [*TABLE, *itertools.product(LAYOUTS, [(1, 1), (8, 1), (1, 9), (2, 2), (17, 40), (64, 33)], CONVOLVE_MODES)]


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


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@pytest.mark.parametrize(("layout", "sizes", "mode"), COMPLETE)
def test_the_complete_table_gives_numpys_result(run, values, same, layout, sizes, mode, strategy):
    run.programs.clear()  # no call comes twice
    check(run, values, same, layout, sizes, mode, strategy)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 9, 3)], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_every_rank_and_axis_is_numpys(run, values, same, shape, axis):
    x, v = (values.random.integers(-9, 9, s) for s in (shape, 4))
    same(run(CONVOLVE, x, v, mesh={"x": 8}, axis=axis), along(x, v, "full", axis))


@pytest.mark.parametrize("mesh", [pytest.param({"x": 1}, marks=pytest.mark.long), {"x": 8}], ids=str)
def test_every_element_type(run, values, same, dtype, mesh):
    x, v = values.small((20,), dtype), values.small((3,), dtype)
    same(run(CONVOLVE, x, v, mesh=mesh, mode="same"), np.convolve(x, v, "same"))


@pytest.mark.parametrize(
    "types", [("int8", "float32"), ("uint8", "int8"), ("bool", "int32"), ("float32", "complex64"), ("int4", "int8")]
)
def test_types_meet_as_numpys(run, values, same, types):
    x, v = (values.small((n,), np.dtype(getattr(ml_dtypes, t, None) or t)) for n, t in zip((20, 3), types, strict=True))
    dtype = np.result_type(x, v)
    same(run(CONVOLVE, x, v, mesh={"x": 8}), np.convolve(x.astype(dtype), v.astype(dtype)))


@pytest.mark.parametrize(
    ("case", "strategy"), pairs_of([("full", 9, 4), ("same", 17, 3), ("valid", 17, 4)], ["halo", "gspmd"])
)
def test_padding_reaches_no_element(run, values, same, case, strategy):
    mode, count, length = case
    x, v = values.small((count,), np.dtype(float)), values.small((length,), np.dtype(float))
    how = {"mesh": {"x": 8}, "in_specs": [("x",), ("x",)], "mode": mode, "strategy": strategy}
    same(run(CONVOLVE, x, v, padding=np.nan, **how), np.convolve(x, v, mode))


@pytest.mark.parametrize("length", [4, MAX_UNROLLED + 1])
def test_elements_outside_the_array_are_omitted_and_not_zero(run, same, length):
    x, v = np.ones(16), np.ones(length)
    v[2], x[5] = np.inf, -np.inf
    for mesh in ({"x": 1}, {"x": 8}):
        with np.errstate(invalid="ignore"):
            same(run(CONVOLVE, x, v, mesh=mesh), np.convolve(x, v))


@pytest.mark.parametrize(("count", "length"), [(70, MAX_UNROLLED), (70, 50), (20, 90)])
def test_long_windows_keep_the_stated_bound(run, values, count, length):
    x, v = values.normal((count,)), values.normal((length,))
    exact, size = (np.convolve(f(x.astype(np.float64)), f(v.astype(np.float64))) for f in (np.asarray, np.abs))
    error = np.abs(run(CONVOLVE, x, v, mesh={"x": 8}) - exact)
    assert (error <= length * np.finfo(np.float32).eps * size).all()


@pytest.mark.long
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    x=hnp.arrays(np.int32, st.sampled_from([(8, 3), (13, 2)])),
    v=hnp.arrays(np.int32, st.sampled_from([1, 3])),
    layout=st.sampled_from(LAYOUTS),
)
def test_the_result_does_not_depend_on_the_mesh(run, same, x, v, layout):
    mesh, spec = layout
    same(run(CONVOLVE, x, v, mesh=mesh, in_specs=[spec], axis=0), run(CONVOLVE, x, v, axis=0))


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

"""`cumsum` is np.cumsum on every mesh: exactly for integers, within the stated bound for floats."""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.numerics.scan import running_sum
from shardcall_server.kernels.stencils.cumsum import CumSum

CUMSUM = CumSum()
LAYOUTS = [  # mesh, spec of a matrix
    ({"x": 1}, ("x", None)),
    ({"x": 8}, ("x", None)),
    ({"x": 8}, (None, "x")),
    ({"a": 4, "b": 2}, ("a", "b")),
    ({"a": 2, "b": 4}, (("b", "a"), None)),
    ({"a": 2, "b": 2, "c": 2}, (("a", "c"), "b")),
]
SHAPES = [(24, 8), (9, 3)]
TABLE = list(itertools.product(LAYOUTS, SHAPES, [0, 1, None]))
SHORT = TABLE[::5]  # each layout, shape and axis


def integers(values, shape):
    return values.random.integers(-(2**62), 2**62, shape)


def check(run, values, same, layout, shape, axis, strategy):
    mesh, spec = layout
    x = integers(values, shape)
    how = {"mesh": mesh, "in_specs": [spec], "axis": axis}
    if strategy == "block_scan" and run.resolve(CUMSUM, x, **how).strategy.name == "gspmd":
        strategy = "auto"  # flattened, and sharded along more axes than the first
    same(run(CUMSUM, x, strategy=strategy, **how), np.cumsum(x, axis))


@pytest.mark.parametrize(
    ("layout", "shape", "axis", "strategy"),
    [(*case, ("block_scan", "block_scan", "gspmd")[i % 3]) for i, case in enumerate(SHORT)],
)
def test_every_mesh_gives_numpys_result(run, values, same, layout, shape, axis, strategy):
    check(run, values, same, layout, shape, axis, strategy)


@pytest.mark.parametrize(("shape", "axis"), pairs_of([(), (0,), (1,), (3,), (0, 4), (2, 3, 4)], [None, 0, -1]), ids=str)
def test_every_rank_is_numpys(run, values, same, shape, axis):
    x = integers(values, shape)
    x = np.int64(x) if not shape else x
    same(run(CUMSUM, x, mesh={"x": 8}, axis=axis), np.cumsum(x, axis))


@pytest.mark.parametrize("mesh", [pytest.param({"x": 1}, marks=pytest.mark.long), {"x": 8}], ids=str)
def test_every_element_type(run, values, same, dtype, mesh):
    x = values.small((24, 3), dtype) if dtype.name.startswith("float8") else values.any((24, 3), dtype)
    if dtype.kind in "fc" or dtype.name == "bfloat16":
        x = values.small(x.shape, dtype)
    result = run(CUMSUM, x, mesh=mesh, axis=0)
    if dtype.name.startswith(("float8", "bfloat16", "float16")):  # NumPy rounds at every step
        same(result, np.cumsum(x, 0, dtype=np.float32).astype(dtype))
    else:
        same(result, np.cumsum(x, 0))


def test_a_nan_or_an_infinity_reaches_only_what_follows_it(run):
    x = np.ones((64, 3))
    x[40, 0], x[17, 1], x[17, 2] = np.nan, np.inf, -np.inf
    for mesh in ({"x": 1}, {"x": 8}):
        np.testing.assert_array_equal(run(CUMSUM, x, mesh=mesh, axis=0), np.cumsum(x, 0))


def test_narrow_floats_do_not_stall(run):
    x = np.ones(1024, ml_dtypes.bfloat16)
    assert np.cumsum(x)[-1] == 256
    assert run(CUMSUM, x, mesh={"x": 8})[-1] == 1024


def test_a_large_array_needs_no_large_scratch():
    array = jax.ShapeDtypeStruct((1024, 2048), jnp.float64)
    before = jax.ShapeDtypeStruct((1024, 1), jnp.float64)
    for axis, first in ((1, before), (0, jax.ShapeDtypeStruct((1, 2048), jnp.float64))):
        compiled = jax.jit(lambda a, b, axis=axis: running_sum(a, axis, b, looped=True)).lower(array, first).compile()
        assert compiled.memory_analysis().temp_size_in_bytes < array.size * 8 / 8


def test_only_totals_move(run):
    x = ArrayType((64, 32), np.dtype(np.float64))
    sharded = run.program(CUMSUM, x, mesh={"x": 8}, in_specs=[("x", None)], axis=0)
    assert sharded.text.count(" all-gather(") == 1
    assert "f64[8,32]" in next(line for line in sharded.text.splitlines() if " all-gather(" in line)
    assert not any(word in sharded.text for word in (" all-to-all(", " collective-permute(", " all-reduce("))
    unsharded = run.program(CUMSUM, x, mesh={"x": 8}, in_specs=[("x", None)], axis=1)
    assert not any(word in unsharded.text for word in (" all-gather(", " all-to-all(", " collective-permute("))


def test_auto_flattens_any_layout(run):
    x = ArrayType((64, 32), np.dtype(np.float64))
    rows = run.resolve(CUMSUM, x, mesh={"x": 8})
    assert (rows.strategy.name, rows.problem.parameters.axis) == ("block_scan", None)
    both = run.resolve(CUMSUM, x, mesh={"a": 4, "b": 2}, in_specs=[("a", "b")])
    assert both.strategy.name == "gspmd"
    assert "only its first axis" in both.reason


def test_equal_calls_have_equal_parameters(run):
    x = ArrayType((64,), np.dtype(np.int32))
    calls = [{}, {"axis": 0}, {"axis": -1}, {"dtype": "int64"}, {"axis": None, "dtype": None}]
    assert len({str(run.resolve(CUMSUM, x, **call).problem.parameters) for call in calls}) == 1


F64 = ArrayType((9, 3), np.dtype(np.float64))


@pytest.mark.parametrize(
    ("x", "how", "reason", "field", "parts"),
    [
        (F64, {"axis": 2}, Reason.AXIS_OUT_OF_RANGE, "axis", ["axis=2", "2 axes", "-2 to 1", "None"]),
        (ArrayType((), F64.dtype), {"axis": 1}, Reason.AXIS_OUT_OF_RANGE, "axis", ["axis=1", "-1 to 0"]),
        (F64, {"axis": 0.5}, Reason.PARAMETER_TYPE, "axis", ["0.5", "float", "an integer"]),
        (F64, {"dtype": 3}, Reason.PARAMETER_TYPE, "dtype", ["dtype=3", "the name of an element type"]),
        (F64, {"dtype": "datetime64"}, Reason.UNSUPPORTED_ELEMENT_TYPE, "dtype", ["datetime64", "float64", "int4"]),
        (
            ArrayType((3,), np.dtype(np.complex64)),
            {"dtype": "float64"},
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            "dtype",
            ["complex64", "imaginary", "real part"],
        ),
        (
            F64,
            {"mesh": {"x": 8}, "strategy": "block_scan", "axis": 0, "out_specs": [(None, "x")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            ["P('x', None)", "P(None, 'x')", "gspmd"],
        ),
        (
            F64,
            {"mesh": {"x": 8}, "strategy": "block_scan", "in_specs": [(None, "x")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            ["flattened", "only its first axis", "gspmd"],
        ),
        (
            F64,
            {"mesh": {"x": 8}, "strategy": "block_scan", "out_specs": [("x",)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            ["9 rows", "8 blocks", "left unset"],
        ),
        (
            F64,
            {"mesh": {"x": 8}, "strategy": "block_scan", "out_specs": [()]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            ["P('x', None)", "P(None)", "P('x')"],
        ),
        (ArrayType((), F64.dtype), {"strategy": "block_scan"}, Reason.STRATEGY_UNSUPPORTED, "strategy", ["scalar"]),
    ],
)
def test_refusals_say_what_to_do(refused, x, how, reason, field, parts):
    error = refused(CUMSUM, x, **how)
    assert (error.reason, error.field) == (reason, field)
    assert all(part in error.message for part in parts), error.message

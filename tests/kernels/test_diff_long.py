"""The tests of `test_diff.py` that take long."""

import itertools

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_diff import DIFF, EDGES, LAYOUTS, SHAPES, check, edge, expected
from pairs import pairs_of

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.stencils import halo

pytestmark = pytest.mark.long

COMPLETE = [*itertools.product(LAYOUTS, [*SHAPES, (4095, 2), (1, 3), (16, 3)], EDGES, range(6))]


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@pytest.mark.parametrize(("layout", "shape", "edges", "n"), COMPLETE)
def test_the_complete_table_gives_numpys_result(run, values, same, layout, shape, edges, n, strategy):
    run.programs.clear()  # no call comes twice
    check(run, values, same, layout, shape, edges, n, strategy)


@pytest.mark.parametrize(
    ("rows", "n", "edges"),
    [
        (64, 12, (None, None)),
        (64, 33, (0, None)),
        (61, 20, (3, 1)),
        pytest.param(24, 1, (10, None), marks=pytest.mark.long),
        (24, 2, (9, 8)),
        (9, 1, (None, None)),
        (9, 3, (2, 2)),
        pytest.param(16, 1, (2, 1), marks=pytest.mark.long),
    ],
)
def test_halo_fetches_from_farther_blocks_where_neighbours_are_narrow(run, values, same, rows, n, edges):
    x = values.normal((rows, 3), np.float64)
    ends = [edge(values, count, x.shape, 0, np.float64) for count in edges]
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "strategy": "halo", "n": n, "axis": 0}
    same(run(DIFF, x, *ends, padding=np.nan, **how), expected(x, *ends, n=n, axis=0))


def test_every_element_type(run, values, same, dtype):
    x, first = values.any((24, 5), dtype), values.any((1, 5), dtype)
    same(run(DIFF, x, first, mesh={"x": 8}, n=2, axis=0), expected(x, first, None, n=2, axis=0))


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@pytest.mark.parametrize("n", range(6))
def test_every_element_type_in_every_order(run, values, same, dtype, n, strategy):
    x, last = values.any((48, 5), dtype), values.any((1, 5), dtype)
    result = run(DIFF, x, None, last, mesh={"x": 8}, n=n, axis=0, strategy=strategy)
    same(result, expected(x, None, last, n=n, axis=0))


@pytest.mark.parametrize("n", [1, 2])
def test_every_element_type_on_one_device(run, values, same, dtype, n):
    x, first = values.any((24, 5), dtype), values.any((1, 5), dtype)
    same(run(DIFF, x, first, mesh={"x": 1}, n=n, axis=0), expected(x, first, None, n=n, axis=0))


MIXED = [
    ("float32", "float64"),
    ("int8", "bfloat16"),
    ("uint8", "float8_e4m3fn"),
    ("bool", "int4"),
    ("int64", "complex64"),
    *(pytest.param(*types, marks=pytest.mark.long) for types in (("uint64", "int8"), ("float8_e5m2", "bool"))),
    ("bool", "bool"),
]


@pytest.mark.parametrize(("of_x", "of_edge"), MIXED)
def test_operands_of_two_types_meet_in_numpys(run, values, same, of_x, of_edge):
    of_x, of_edge = (np.dtype(getattr(ml_dtypes, name, name)) for name in (of_x, of_edge))
    x, scalar = values.any((24, 5), of_x), values.any((1,), of_edge).reshape(())
    result = run(DIFF, x, scalar, mesh={"x": 8}, n=2, axis=0)
    same(result, expected(x, scalar, None, n=2, axis=0))


@pytest.mark.parametrize(("strategy", "dtype_"), pairs_of(["halo", "gspmd"], ["float32", "int16", "bool"]))
def test_orders_beyond_the_unrolled_are_a_loop(run, values, same, dtype_, strategy):
    n = halo.MAX_UNROLLED + 3
    x = values.any((8 * 2 * n, 3), np.dtype(dtype_))
    if dtype_ == "float32":
        x = values.normal(x.shape)
    same(run(DIFF, x, mesh={"x": 8}, n=n, axis=0, strategy=strategy), expected(x, None, None, n=n, axis=0))


@pytest.mark.parametrize(
    ("strategy", "edges"), pairs_of(["halo", "gspmd"], [(None, None), (0, None), (2, 1), (None, 2)])
)
def test_padding_does_not_leak(run, values, same, edges, strategy):
    x = values.normal((61, 5))
    ends = [edge(values, rows, x.shape, 0, np.float32) for rows in edges]
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")], "n": 2, "axis": 0, "strategy": strategy}
    same(run(DIFF, x, *ends, padding=np.nan, **how), expected(x, *ends, n=2, axis=0))


REAL = st.floats(width=32, allow_subnormal=False, allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=hnp.arrays(np.float32, (19, 2), elements=REAL), first=REAL, last=hnp.arrays(np.float32, (1, 2), elements=REAL))
def test_any_values(run, same, strategy, x, first, last):
    ends = np.float32(first), last
    result = run(DIFF, x, *ends, mesh={"x": 8}, n=2, axis=0, strategy=strategy)
    want = expected(x, *ends, n=2, axis=0)
    tiny = np.abs(want) < 1e-30  # a difference may be subnormal though no operand is
    same(np.where(tiny, np.float32(0), result), np.where(tiny, np.float32(0), want))


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(x=hnp.arrays(np.uint64, (19, 2)), first=st.integers(0, 2**64 - 1))
def test_any_integers_wrap(run, same, strategy, x, first):
    result = run(DIFF, x, np.uint64(first), mesh={"x": 8}, n=2, axis=0, strategy=strategy)
    same(result, expected(x, np.uint64(first), None, n=2, axis=0))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_result_does_not_depend_on_the_mesh(run, same, data):
    run.programs.clear()
    mesh, spec = data.draw(st.sampled_from(LAYOUTS))
    shape = data.draw(st.tuples(st.integers(0, 70), st.integers(0, 9)))
    n, axis = data.draw(st.integers(0, 6)), data.draw(st.integers(-2, 1))
    x = np.random.default_rng(0).normal(size=shape)
    ends = [
        edge_of(np.random.default_rng(1), data.draw(st.sampled_from([None, 0, 1, 2, 7])), shape, axis % 2)
        for _ in range(2)
    ]
    result = run(DIFF, x, *ends, mesh=mesh, in_specs=[spec], n=n, axis=axis)
    same(result, expected(x, *ends, n=n, axis=axis))


def edge_of(random, rows, shape, axis):
    if rows is None:
        return None
    return random.normal(size=(*shape[:axis], rows, *shape[axis + 1 :]) if rows else ())


@pytest.mark.parametrize(("size", "n"), pairs_of([(2, 4096), (8, 4095), (2, 4095), (8, 4096)], [1, 2, 3, 4]))
def test_up_to_order_four_no_block_is_written_for_a_separate_pass(run, size, n):
    """Also if the blocks of x and of the result have different sizes, so that offsets differ between devices."""
    devices, rows = size
    x, scalar = ArrayType((rows, 16), np.dtype(np.float64)), ArrayType((), np.dtype(np.float64))
    how = {"mesh": {"x": devices}, "in_specs": [("x", None)], "axis": 0, "n": n, "strategy": "halo"}
    compiled = run.program(DIFF, x, scalar, **how).compiled
    assert compiled.memory_analysis().temp_size_in_bytes < rows * 16 * 8 / devices / 2

"""The tests of `test_cumsum.py` that take long."""

import itertools

import hypothesis.extra.numpy as hnp
import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_cumsum import CUMSUM, LAYOUTS, TABLE, check, integers
from pairs import pairs_of

from shardcall_server.kernels.numerics.scan import SMALL, running_sum

pytestmark = pytest.mark.long

ODD = [(0, 3), (3, 0), (1, 1), (7, 1), (17, 5), (1, 40)]


@pytest.mark.parametrize("strategy", ["block_scan", "gspmd"])
@pytest.mark.parametrize(("layout", "shape", "axis"), [*TABLE, *itertools.product(LAYOUTS, ODD, [0, 1, None])])
def test_the_complete_table_gives_numpys_result(run, values, same, layout, shape, axis, strategy):
    run.programs.clear()  # no call comes twice
    check(run, values, same, layout, shape, axis, strategy)


@pytest.mark.parametrize(
    ("x_type", "result_type"),
    [
        ("float64", "int32"),
        ("float32", "bool"),
        ("int64", "bool"),
        ("int32", "int8"),
        ("uint8", "int4"),
        ("int8", "float32"),
        ("float32", "complex64"),
        ("bool", "float16"),
        ("bool", "bool"),
        ("float8_e4m3fn", "float64"),
    ],
)
def test_dtype_is_summed_in_and_returned(run, values, same, x_type, result_type):
    x = (values.normal((24, 3), np.float64) * 3).astype(np.dtype(getattr(ml_dtypes, x_type, None) or x_type))
    dtype = np.dtype(getattr(ml_dtypes, result_type, None) or result_type)
    result = run(CUMSUM, x, mesh={"x": 8}, axis=0, dtype=result_type)
    if dtype.kind in "fc":
        np.testing.assert_allclose(result, np.cumsum(x, 0, dtype=dtype), rtol=1e-5, atol=1e-5, strict=True)
    else:
        same(result, np.cumsum(x, 0, dtype=dtype))


@pytest.mark.parametrize(
    ("strategy", "axis", "shape"), pairs_of(["block_scan", "gspmd"], [0, None], [(17, 3), (9, 3), (2, 3)])
)
def test_padding_reaches_no_element(run, values, shape, axis, strategy):
    x = values.normal(shape, np.float64)
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)], "strategy": strategy, "axis": axis}
    np.testing.assert_allclose(run(CUMSUM, x, padding=np.nan, **how), np.cumsum(x, axis), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("size", "devices"), pairs_of([6000, SMALL * 3 + 1], [1, 2, 3]))
def test_a_part_that_is_infinite_or_no_number_leaves_the_other_part_as_it_is(run, devices, size):
    x = np.ones((size, 3), np.complex64)
    x[40, 0], x[size - 2, 1], x[17, 2] = complex(np.inf, 1), complex(1, np.nan), complex(1, -np.inf)
    np.testing.assert_array_equal(run(CUMSUM, x, mesh={"x": devices}, axis=0), np.cumsum(x, 0))
    np.testing.assert_array_equal(run(CUMSUM, x[:, 0], mesh={"x": devices}, axis=0), np.cumsum(x[:, 0]))


@pytest.mark.parametrize(("layout", "dtype_name"), pairs_of(LAYOUTS[:4], ["float32", "float64"]))
def test_floats_keep_the_stated_bound(run, values, layout, dtype_name):
    (mesh, spec), dtype = layout, np.dtype(dtype_name)
    x = values.normal((512, 8), dtype)
    error = np.abs(run(CUMSUM, x, mesh=mesh, in_specs=[spec], axis=0) - np.cumsum(x.astype(np.longdouble), 0))
    bound = np.arange(1, 513)[:, None] * np.finfo(dtype).eps * np.cumsum(np.abs(x), 0, dtype=np.float64)
    assert (error <= bound).all()


FORMS = [  # shapes that reach every form of the loop; n is axis 1
    (1, SMALL + 5, 1),
    (3, 7000, 1),
    (4100, 19, 1),
    (2000, 10, 1),
    (1, 300, 80),
    (2, 41, 500),
    (1, 6001, 5),
    (5000, 2, 3),
]


def check_form(values, shape):
    array = integers(values, shape)
    before = integers(values, (shape[0], 1, shape[2]))
    result = jax.jit(lambda a, b: running_sum(a, 1, b, looped=True))(array, before)
    np.testing.assert_array_equal(result, before + np.cumsum(array, 1), strict=True)


@pytest.mark.parametrize("shape", FORMS[::2], ids=str)
def test_the_loop_is_numpys(values, shape):
    check_form(values, shape)


@pytest.mark.parametrize("shape", FORMS, ids=str)
def test_every_form_of_the_loop_is_numpys(values, shape):
    check_form(values, shape)


@pytest.mark.parametrize("shape", [(1141, 47), pytest.param((2000, 20), marks=pytest.mark.long), (5000, 34)], ids=str)
def test_rows_behind_the_last_iteration_are_added_once(run, values, same, shape):
    """XLA updated such rows in place while it read them, in programs of the kernel only."""
    x = values.small(shape, np.dtype("float64"))
    same(run(CUMSUM, x, mesh={"x": 1}, in_specs=[("x", None)], strategy="block_scan", axis=1), np.cumsum(x, 1))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    x=hnp.arrays(np.int64, st.sampled_from([(8, 3), (13, 2), (5, 9)])),
    layout=st.sampled_from(LAYOUTS),
    axis=st.sampled_from([0, 1]),
)
def test_diff_undoes_it(run, same, x, layout, axis):
    mesh, spec = layout
    sums = run(CUMSUM, x, mesh=mesh, in_specs=[spec], axis=axis)
    with np.errstate(over="ignore"):
        same(np.diff(sums, axis=axis, prepend=np.int64(0)), x)


def test_auto_serves_what_block_scan_refuses(run, values, same):
    x = integers(values, (9, 3))
    same(run(CUMSUM, x, mesh={"x": 8}, axis=0, out_specs=[(None, "x")]), np.cumsum(x, 0))
    same(run(CUMSUM, x, mesh={"x": 8}, in_specs=[(None, "x")]), np.cumsum(x))
    same(run(CUMSUM, x, mesh={"x": 8}, out_specs=[("x",)]), np.cumsum(x))
    same(run(CUMSUM, integers(values, (16, 3)), mesh={"x": 8}, out_specs=[("x",)], strategy="block_scan")[:0], x[:0, 0])

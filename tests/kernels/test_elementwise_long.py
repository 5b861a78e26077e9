"""The tests of `test_elementwise.py` that take long."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_elementwise import COMPLEX, KERNELS, assert_close, check, expected
from pairs import pairs_of

from shardcall_core.layouts.layout import ArrayType

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", KERNELS)
def test_every_function_is_numpys_for_every_element_type(run, values, element_types, name):
    for dtype in element_types:
        check(run, values, name, dtype, {"a": 4, "b": 2})
        run.programs.clear()  # no call comes twice


@pytest.mark.parametrize(
    ("name", "dtype_"), pairs_of(["true_divide", "floor_divide", "remainder"], ["float32", "float64", "int64"])
)
def test_a_divisor_that_is_broadcast_divides_as_any_other(run, same, values, name, dtype_):
    dtype = np.dtype(dtype_)
    x = values.normal((64, 5), np.float64) * 1000
    for y in (np.array(3), np.full((64, 1), 49), np.array([[3, 7, 49, 11, 98]])):
        operands = x.astype(dtype), y.astype(dtype)
        same(run(KERNELS[name], *operands, mesh={"x": 8}), expected(name, *operands))


MOVED = [  # mesh, shape, specs of x and of the result
    ({"b": 2, "y": 3}, (13,), [(("y", "b"),)], [("y",)]),
    ({"a": 2, "x": 4}, (1, 13, 2), [("a", None, "x")], [("x", "a", None)]),
    ({"a": 2, "x": 4}, (8, 6), [(None, "x")], [("a", None)]),
]


@pytest.mark.parametrize(("layout", "dtype_"), pairs_of(MOVED, ["float16", "complex64", "float64"]))
def test_what_is_moved_between_devices_keeps_zeros_signs(run, layout, dtype_):
    mesh, shape, in_specs, out_specs = layout
    x = -np.zeros(shape, dtype_)
    moved = run(KERNELS["positive"], x, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    assert np.signbit(moved.real).all()
    smallest = np.full(shape, np.finfo(dtype_).smallest_subnormal, x.real.dtype)
    kept = run(KERNELS["positive"], smallest, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    assert (kept == smallest).all()


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolics_of_small_complex_numbers_have_all_digits(run, name):
    x = np.array([1e-10 + 1e-10j, 1e-20, 1e-3 - 1e-7j, -0.5 + 2j, 300 + 1j, -1e-5j])
    result, reference = run(KERNELS[name], x, mesh={"x": 2}), expected(name, x)
    np.testing.assert_allclose(result.real, reference.real, rtol=2e-15)
    np.testing.assert_allclose(result.imag, reference.imag, rtol=2e-15)


def test_complex_numbers_and_ties_are_clipped_as_in_numpy(run, same):
    some = COMPLEX[np.isfinite(COMPLEX.real) | np.isnan(COMPLEX.real)][::3]
    x, low, high = (np.array(part) for part in zip(*itertools.product(some, repeat=3), strict=True))
    result, reference = run(KERNELS["clip"], x, low, high, mesh={"x": 8}), np.clip(x, low, high)
    same(result, reference)
    zeros = np.array(list(itertools.product((0.0, -0.0, 1.0, -1.0, np.nan), repeat=3))).T
    for dtype in ("float32", "float64"):
        x, low, high = zeros.astype(dtype)
        result, reference = run(KERNELS["clip"], x, low, high, mesh={"x": 8}), np.clip(x, low, high)
        same(result, reference)
        number = ~np.isnan(reference)
        same(np.signbit(result)[number], np.signbit(reference)[number])


EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -1.5, 1e38, 7.0, -7.0]


@pytest.mark.parametrize("name", ["maximum", "fmax", "floor_divide", "remainder", "fmod", "copysign", "multiply"])
def test_nan_infinity_and_signed_zero(run, same, name):
    x, y = (np.array(a, np.float32) for a in zip(*itertools.product(EDGES, repeat=2), strict=True))
    result, reference = run(KERNELS[name], x, y, mesh={"x": 8}), expected(name, x, y)
    same(result, reference)
    if name not in ("maximum", "fmax"):  # for equal zeros, NumPy's choice depends on the machine
        number = reference == reference  # noqa: PLR0124
        same(np.signbit(result)[number], np.signbit(reference)[number])


@pytest.mark.parametrize("name", ["power", "float_power"])
def test_powers_of_complex_zero_are_numpys(run, same, name):
    y = np.array([1 + 2j, 0.5 - 1j, 2, 0, 1j, -1, -1 + 1j])
    with np.errstate(all="ignore"):
        reference = getattr(np, name)(np.zeros_like(y), y)
    same(run(KERNELS[name], np.zeros_like(y), y), reference)


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "left_shift", "right_shift"])
def test_integers_by_zero_overflow_and_shifts_beyond_the_width(run, same, name):
    pairs = itertools.product(range(-128, 128), (-128, -9, -8, -2, -1, 0, 1, 3, 7, 8, 127))
    x, y = (np.array(a, np.int8) for a in zip(*pairs, strict=True))
    same(run(KERNELS[name], x, y, mesh={"x": 8}), expected(name, x, y))


@pytest.mark.parametrize("small", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_float8_is_rounded_once_for_every_pair_of_values(run, same, small, name):
    every = np.arange(256, dtype=np.uint8).view(small)
    x, y = (a.ravel() for a in np.meshgrid(every, every))
    same(run(KERNELS[name], x, y, mesh={"x": 8}), expected(name, x, y))


LAYOUTS = [(("a", "b"), ("a", "b")), (("a", "b"), (None, ("b", "a"))), ((None, None), ("b", None)), (("b",), None)]


@pytest.mark.parametrize(("x_spec", "y_spec"), LAYOUTS)
@pytest.mark.parametrize("out_spec", [None, (None, "a")])
def test_operands_may_have_different_shardings(run, values, same, x_spec, y_spec, out_spec):
    x, y = values.normal((13, 5)), values.normal((13, 5))
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [x_spec, y_spec], "out_specs": [out_spec], "padding": np.nan}
    same(run(KERNELS["add"], x, y, **how), x + y)


@pytest.mark.parametrize(
    ("spec", "dtype_name"),
    pairs_of(
        [("a", "b"), (None, ("a", "b")), (("b", "a"), None)],
        ["bool", "int4", "float8_e5m2", "bfloat16", "float32", "complex64"],
    ),
)
@pytest.mark.parametrize("shape", [(16, 24), (19, 5)])
def test_a_result_on_fewer_mesh_axes_is_computed_in_blocks_and_gathered(
    run, values, element_types, shape, spec, dtype_name
):
    dtype = next(element_type for element_type in element_types if element_type.name == dtype_name)
    x = values.any(shape, dtype)
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [spec], "out_specs": [(None, None)]}
    padding = 0 if dtype.kind in "biu" or dtype.name == "int4" else np.nan
    assert_close("add", run(KERNELS["add"], x, x, **how, padding=padding), expected("add", x, x))
    text = run.program(KERNELS["add"], *[ArrayType(shape, dtype)] * 2, **how).compiled.as_text()
    gathers = [line for line in text.splitlines() if " all-gather(" in line]
    assert gathers
    assert all("dimensions={0}" in line for line in gathers)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-(2**15), 2**15), min_size=40, max_size=40), st.sampled_from([1, 2, 3, 8]))
def test_the_mesh_does_not_change_the_result(run, same, items, devices):
    x = (np.array(items) / 1024).astype(np.float32)
    sharded = run(KERNELS["tanh"], x, mesh={"x": devices})
    same(sharded, run(KERNELS["tanh"], x, mesh={"x": 1}))


@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_a_bool_beside_nan_is_a_number(run, same, name):
    # XLA turns a product with a bool into a select, in which False times NaN is 0.
    flags, x = np.array([False, True, False, True]), np.array([np.nan, np.nan, np.inf, -0.0])
    for operands in ((flags, x), (x, flags), (flags, flags)):
        same(run(KERNELS[name], *operands, mesh={"x": 2}), expected(name, *operands))

"""The tests of `test_elementwise.py` that take long."""

import itertools

import numpy as np
import pytest
from kernels.test_elementwise import COMPLEX, KERNELS, assert_close, expected, numpys

from shardcall_core.element_types import NAMED
from shardcall_core.layouts.layout import ArrayType

pytestmark = pytest.mark.long


def test_a_divisor_that_is_broadcast_divides_as_any_other(run, values):
    x = values.normal((64, 5), np.float64) * 1000
    divisors = np.array(3), np.full((64, 1), 49), np.array([[3, 7, 49, 11, 98]])
    run.check_together(
        numpys(run, name, x.astype(dtype), y.astype(dtype), mesh={"x": 8})
        for name in ("true_divide", "floor_divide", "remainder")
        for dtype in ("float32", "float64", "int64")
        for y in divisors
    )


MOVED = [  # mesh, shape, specs of x and of the result
    ({"b": 2, "y": 3}, (13,), [(("y", "b"),)], [("y",)]),
    ({"a": 2, "x": 4}, (1, 13, 2), [("a", None, "x")], [("x", "a", None)]),
    ({"a": 2, "x": 4}, (8, 6), [(None, "x")], [("a", None)]),
]


@pytest.mark.parametrize("dtype_", ["float16", "complex64", "float64"])
def test_what_is_moved_between_devices_keeps_zeros_signs(run, same_bits, dtype_):
    calls = []
    for mesh, shape, in_specs, out_specs in MOVED:
        zeros = -np.zeros(shape, dtype_)
        smallest = np.full(shape, np.finfo(dtype_).smallest_subnormal, zeros.real.dtype)
        how = {"mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
        calls += [(run.call(KERNELS["positive"], x, **how), x) for x in (zeros, smallest)]
    run.check_together(calls, same_bits)


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


@pytest.mark.parametrize("name", ["power", "float_power"])
def test_powers_of_complex_zero_are_numpys(run, same, name):
    y = np.array([1 + 2j, 0.5 - 1j, 2, 0, 1j, -1, -1 + 1j])
    with np.errstate(all="ignore"):
        reference = getattr(np, name)(np.zeros_like(y), y)
    same(run(KERNELS[name], np.zeros_like(y), y), reference)


def test_integers_by_zero_overflow_and_shifts_beyond_the_width(run):
    pairs = itertools.product(range(-128, 128), (-128, -9, -8, -2, -1, 0, 1, 3, 7, 8, 127))
    x, y = (np.array(a, np.int8) for a in zip(*pairs, strict=True))
    names = ("floor_divide", "remainder", "left_shift", "right_shift")
    run.check_together(numpys(run, name, x, y, mesh={"x": 8}) for name in names)


def test_float8_is_rounded_once_for_every_pair_of_values(run):
    every = [np.arange(256, dtype=np.uint8).view(NAMED[name]) for name in ("float8_e4m3fn", "float8_e5m2")]
    pairs = [[a.ravel() for a in np.meshgrid(numbers, numbers)] for numbers in every]
    run.check_together(numpys(run, name, *pair, mesh={"x": 8}) for name in ("multiply", "divide") for pair in pairs)


LAYOUTS = [(("a", "b"), ("a", "b")), (("a", "b"), (None, ("b", "a"))), ((None, None), ("b", None)), (("b",), None)]


def test_operands_may_have_different_shardings(run, values):
    x, y = values.normal((13, 5)), values.normal((13, 5))
    run.check_together(
        (
            numpys(run, "add", x, y, mesh={"a": 4, "b": 2}, in_specs=in_specs, out_specs=[out_spec])
            for in_specs in LAYOUTS
            for out_spec in (None, (None, "a"))
        ),
        padding=np.nan,
    )


@pytest.mark.parametrize("spec", [("a", "b"), (None, ("a", "b")), (("b", "a"), None)])
@pytest.mark.parametrize("shape", [(16, 24), (19, 5)])
def test_a_result_on_fewer_mesh_axes_is_computed_in_blocks_and_gathered(run, values, shape, spec):
    for name in ("bool", "int4", "float8_e5m2", "bfloat16", "float32", "complex64"):
        dtype = NAMED[name]
        x = values.any(shape, dtype)
        how = {"mesh": {"a": 4, "b": 2}, "in_specs": [spec], "out_specs": [(None, None)]}
        padding = 0 if dtype.kind in "biu" or dtype.name == "int4" else np.nan
        assert_close("add", run(KERNELS["add"], x, x, **how, padding=padding), expected("add", x, x))
        text = run.program(KERNELS["add"], *[ArrayType(shape, dtype)] * 2, **how).compiled.as_text()
        gathers = [line for line in text.splitlines() if " all-gather(" in line]
        assert gathers
        assert all("dimensions={0}" in line for line in gathers)


def test_a_bool_beside_nan_is_a_number(run):
    """XLA turns a product with a bool into a select, in which False times NaN is 0."""
    flags, x = np.array([False, True, False, True]), np.array([np.nan, np.nan, np.inf, -0.0])
    pairs = (flags, x), (x, flags), (flags, flags)
    run.check_together(numpys(run, name, *pair, mesh={"x": 2}) for name in ("multiply", "divide") for pair in pairs)

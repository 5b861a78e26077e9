"""The tests of `test_edge_numbers.py` that take long."""

import numpy as np
import pytest
from kernels.test_edge_numbers import KERNELS, NARROW, SPECIAL, WIDE, assert_alike, edges, expected, grid, triples

from shardcall_core.element_types import NAMED

pytestmark = pytest.mark.long

UNARY = (
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal"),
    *("absolute", "sign", "angle", "negative", "conjugate", "real", "imag", "isnan", "isinf", "isfinite"),
)


BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and"),
)


def pairs(dtype):
    every = grid(dtype, SPECIAL, len(SPECIAL) ** 2)
    return [np.resize(a, 4_099) for a in np.meshgrid(every, every)]


@pytest.mark.parametrize("dtype_", ["complex64", "complex128"])
def test_unary_edge_cases_equal_numpys(run, dtype_):
    info = np.finfo(dtype_)
    x = grid(dtype_, [*SPECIAL, 0.5, -2.5, info.max / 2, -np.sqrt(info.max) * 4, info.smallest_normal * 4])
    for name, result in zip(UNARY, run.together(run.call(KERNELS[name], x) for name in UNARY), strict=True):
        # NumPy's log1p loses the digits of small numbers, its square one part of those whose parts differ little.
        few = ~(np.abs(x) < {"log1p": 0.5, "square": 1e-30}.get(name, 0))
        if name == "square":  # of squares beyond the largest number NumPy's difference depends on the processor's FMA
            smaller = np.fmin(abs(x.real), abs(x.imag))
            few &= ~((smaller >= np.sqrt(info.max)) & np.isfinite(smaller))
        assert_alike(name, result[few], expected(name, x[few]))


@pytest.mark.parametrize("dtype_", ["complex64", "complex128"])
def test_binary_edge_cases_equal_numpys(run, dtype_):
    x, y = pairs(dtype_)
    for name, result in zip(BINARY, run.together(run.call(KERNELS[name], x, y) for name in BINARY), strict=True):
        assert_alike(name, result, expected(name, x, y))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_the_first_nan_is_the_largest_and_the_smallest(run, values, name):
    x = values.random.choice(SPECIAL, (9, 60)) + 0j
    x.imag = values.random.choice(SPECIAL, x.shape)
    for mesh, strategy in (({"x": 1}, "gspmd"), ({"x": 4}, "all_reduce")):
        result = run(KERNELS[name], x, mesh=mesh, strategy=strategy, axis=0, padding=np.nan)
        assert_alike(name, result, expected(name, x, axis=0))
    x = np.array([0, complex(1, np.nan), complex(np.nan, 2)])
    assert_alike(name, run(KERNELS[name], x, mesh={"x": 2}), expected(name, x))


@pytest.mark.parametrize("limits", [("complex64", 88.0, 90.0), ("complex128", 709.0, 711.0)])
@pytest.mark.parametrize("name", ["sin", "cosh", "sinh", "cos"])
def test_large_sines_and_cosines_are_finite_as_long_as_numpys(run, name, limits):
    dtype, first, last = limits
    large = np.linspace(first, last, 4_099)
    x = (0.7 + 1j * large if name in ("sin", "cos") else large + 0.7j).astype(dtype)
    with np.errstate(over="ignore"):  # of long doubles, since NumPy's own lose up to 10 bits here
        reference = getattr(np, name)(x.astype(np.clongdouble)).astype(dtype)
    result = run(KERNELS[name], x, mesh={"x": 3})
    for actual, exact in ((result.real, reference.real), (result.imag, reference.imag)):
        # At the limit itself the last bits decide.
        near = np.abs(exact) > 0.999 * np.finfo(exact.dtype).max
        np.testing.assert_allclose(actual[~near], exact[~near], rtol=8 * np.finfo(exact.dtype).eps)


COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


SELECTIONS = ("maximum", "minimum", "fmax", "fmin", "where", "clip")


LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")


OTHERS = ("sign", "absolute", "negative", "positive", "floor", "ceil", "trunc", "rint", "copysign", "sqrt")


TESTS = ("signbit", "isnan", "isinf", "isfinite")


EXACT = (*COMPARISONS, *SELECTIONS, *LOGICAL, *OTHERS, *TESTS)


def compare(result, reference):
    assert result.dtype == reference.dtype
    if reference.dtype != np.bool_:  # NumPy compares exactly; the choice between two zeros depends on the machine
        result, reference = result.astype(np.float64), reference.astype(np.float64)
    np.testing.assert_array_equal(result, reference)


def calls_of(run, names, operands, mesh):
    """Calls of functions, and NumPy's results, of those that NumPy has for the type."""
    for name in names:
        taken = operands[: len(KERNELS[name].operands)]
        try:
            reference = expected(name, *taken)
        except TypeError:
            continue
        yield run.call(KERNELS[name], *taken, mesh=mesh), reference


@pytest.mark.parametrize("count", [7, 4_099])
@pytest.mark.parametrize("name", [*WIDE, *NARROW])
def test_elementwise_results_are_exact_for_every_floating_point_type(run, name, count):
    operands = triples(NAMED[name], count)
    for mesh in ({"x": 1}, {"x": 3}, {"a": 4, "b": 2}):
        run.check_together(calls_of(run, EXACT, operands, mesh), compare)


@pytest.mark.parametrize("name", NARROW[2:])
def test_every_pair_of_float8_values_is_compared_as_in_numpy(run, name):
    every = np.arange(256, dtype=np.uint8).view(NAMED[name])
    pairs = [a.ravel() for a in np.meshgrid(every, every)]
    run.check_together(calls_of(run, [*COMPARISONS, "maximum", "minimum"], pairs, {"x": 8}), compare)


@pytest.mark.parametrize("name", ["log", "log2", "log10"])
def test_logarithms_of_subnormal_numbers_are_numpys(run, name):
    for dtype in WIDE:
        x = np.random.default_rng(5).integers(1, 2**20, 4_099) * float(np.finfo(dtype).smallest_subnormal)
        x = np.concatenate([x, -x[:5], edges(dtype)]).astype(dtype)
        result, reference = run(KERNELS[name], x, mesh={"x": 1}), expected(name, x)
        np.testing.assert_allclose(result, reference, rtol=4 * np.finfo(dtype).eps)


def test_a_subnormal_number_is_truthy(run, same):
    for dtype in WIDE:
        x = np.full(5, np.finfo(dtype).smallest_subnormal, dtype)
        same(run(KERNELS["sum"], x, mesh={"x": 2}, dtype="bool"), np.asarray(True))
        same(run(KERNELS["cumsum"], x, mesh={"x": 2}, dtype="bool"), np.ones(5, bool))


@pytest.mark.parametrize("dtype_", [np.float32, np.float64])
@pytest.mark.parametrize("devices", [1, 8])
def test_cube_roots_and_angles_of_subnormal_numbers_are_numpys(run, dtype_, devices):
    y, x, z = triples(np.dtype(dtype_))
    x[::3] *= dtype_(1.7)
    mesh = {"x": devices}
    np.testing.assert_allclose(run(KERNELS["cbrt"], y, mesh=mesh), np.cbrt(y), rtol=2 * np.finfo(dtype_).eps)
    for beside in (x, z, np.full_like(x, -2.5), np.full_like(x, -1e30), np.full_like(x, 1e-30)):
        result, reference = run(KERNELS["arctan2"], y, beside, mesh=mesh), np.arctan2(y, beside)
        assert_near_or_flushed(result, reference)
        number = np.empty(y.shape, np.result_type(dtype_, np.complex64))
        number.real, number.imag = beside, y
        assert_near_or_flushed(run(KERNELS["angle"], number, mesh=mesh), np.angle(number))
        assert_near_or_flushed(run(KERNELS["log"], number, mesh=mesh).imag, np.angle(number))


def assert_near_or_flushed(result, reference):
    """Checks a result within 4 units in the last place; subnormal results may be zero."""
    info = np.finfo(reference.dtype)
    np.testing.assert_allclose(result, reference, rtol=4 * info.eps, atol=info.smallest_normal)
    assert (np.signbit(result) == np.signbit(reference))[~np.isnan(reference)].all()

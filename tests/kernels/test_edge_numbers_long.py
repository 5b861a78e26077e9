"""The tests of `test_edge_numbers.py` that take long."""

import numpy as np
import pytest
from kernels.test_edge_numbers import KERNELS, NARROW, SPECIAL, WIDE, assert_alike, expected, grid, triples

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


def test_a_subnormal_number_is_truthy(run, same):
    for dtype in WIDE:
        x = np.full(5, np.finfo(dtype).smallest_subnormal, dtype)
        same(run(KERNELS["sum"], x, mesh={"x": 2}, dtype="bool"), np.asarray(True))
        same(run(KERNELS["cumsum"], x, mesh={"x": 2}, dtype="bool"), np.ones(5, bool))

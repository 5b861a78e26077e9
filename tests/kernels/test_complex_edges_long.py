"""The tests of `test_complex_edges.py` that take long."""

import numpy as np
import pytest
from kernels.test_complex_edges import KERNELS, SPECIAL, assert_alike, expected, grid

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

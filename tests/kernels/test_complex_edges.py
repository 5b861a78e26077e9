"""Infinities, NaN, signs of zeros, and the largest and small numbers in parts of complex numbers, as in NumPy."""

import itertools

import numpy as np
import pytest
from pairs import pairs_of

from shardcall_server.kernels.elementwise.elementwise import elementwise
from shardcall_server.kernels.elementwise.reductions import reductions

KERNELS = {kernel.name: kernel for kernel in (*elementwise(), *reductions())}
UNARY = (
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal"),
    *("absolute", "sign", "angle", "negative", "conjugate", "real", "imag", "isnan", "isinf", "isfinite"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and"),
)
SPECIAL = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)


def grid(dtype, parts, count=4_099):
    return np.resize(np.array([complex(a, b) for a, b in itertools.product(parts, repeat=2)], dtype), count)


def pairs(dtype):
    every = grid(dtype, SPECIAL, len(SPECIAL) ** 2)
    return [np.resize(a, 4_099) for a in np.meshgrid(every, every)]


def expected(name, *operands, **how):
    with np.errstate(all="ignore"):
        return np.asarray(getattr(np, name)(*operands, **how))


def assert_alike(name, result, reference):
    """Checks infinities, NaN and signs of zeros, and that numbers are within a few units of the complex magnitude."""
    assert (result.shape, result.dtype) == (reference.shape, reference.dtype), name
    if reference.dtype.kind not in "fc":
        np.testing.assert_array_equal(result, reference, name)
        return
    info, size = np.finfo(reference.dtype), np.abs(reference)
    for part, of_numpy in ((result.real, reference.real), (result.imag, reference.imag)):
        with np.errstate(all="ignore"):
            alike = (part == of_numpy) & ((part != 0) | (np.signbit(part) == np.signbit(of_numpy)))
            alike |= np.isnan(part) & np.isnan(of_numpy)
            alike |= np.isfinite(part) & (abs(part - of_numpy) <= 16 * info.eps * size) & (of_numpy != 0)
            alike |= (part == 0) & (of_numpy != 0) & (abs(of_numpy) < info.smallest_normal)  # arithmetic flushes it
        assert alike.all(), f"{name}: {int((~alike).sum())} differ, first at {np.flatnonzero(~alike)[0]}"


@pytest.mark.parametrize("dtype_", [pytest.param("complex64", marks=pytest.mark.long), "complex128"])
def test_unary_edge_cases_equal_numpys(run, dtype_):
    info = np.finfo(dtype_)
    parts = [*SPECIAL, 0.5, -2.5, info.max / 2, -np.sqrt(info.max) * 4, info.smallest_normal * 4]
    x = grid(dtype_, parts)
    for name, result in run.together([(KERNELS[name], x) for name in UNARY]).items():
        # NumPy's log1p loses the digits of small numbers, its square one part of those whose parts differ little.
        few = ~(np.abs(x) < {"log1p": 0.5, "square": 1e-30}.get(name, 0))
        if name == "square":  # of squares beyond the largest number NumPy's difference depends on the processor's FMA
            smaller = np.fmin(abs(x.real), abs(x.imag))
            few &= ~((smaller >= np.sqrt(info.max)) & np.isfinite(smaller))
        assert_alike(name, result[few], expected(name, x[few]))


@pytest.mark.parametrize("dtype_", [pytest.param("complex64", marks=pytest.mark.long), "complex128"])
def test_binary_edge_cases_equal_numpys(run, dtype_):
    x, y = pairs(dtype_)
    for name, result in run.together([(KERNELS[name], x, y) for name in BINARY]).items():
        assert_alike(name, result, expected(name, x, y))


def test_integer_powers_are_products(run):
    x = grid(np.complex128, [0.0, 1.0, -2.5], 9)
    exponents = np.array([0, 1, 2, 3, 4, 7, 99, -1, -2, -99], complex)
    x, y = (a.ravel() for a in np.meshgrid(x, exponents))
    result, reference = run(KERNELS["power"], x, y), expected("power", x, y)
    np.testing.assert_allclose(result, reference, rtol=1e-13)
    assert run(KERNELS["power"], np.array([1 + 1j]), np.array(2 + 0j)) == 2j


@pytest.mark.parametrize(
    "name", ["max", *(pytest.param(n, marks=pytest.mark.long) for n in ("min", "argmax", "argmin"))]
)
def test_the_first_nan_is_the_largest_and_the_smallest(run, values, name):
    x = values.random.choice(SPECIAL, (9, 60)) + 0j
    x.imag = values.random.choice(SPECIAL, x.shape)
    for mesh, strategy in (({"x": 1}, "gspmd"), ({"x": 4}, "all_reduce")):
        result = run(KERNELS[name], x, mesh=mesh, strategy=strategy, axis=0, padding=np.nan)
        assert_alike(name, result, expected(name, x, axis=0))
    x = np.array([0, complex(1, np.nan), complex(np.nan, 2)])
    assert_alike(name, run(KERNELS[name], x, mesh={"x": 2}), expected(name, x))


@pytest.mark.parametrize("dtype_", ["float32", "complex64"])
def test_scalar_bounds_leave_zeros_of_either_sign(run, dtype_):
    x = grid(np.complex64, SPECIAL, 49) if dtype_ == "complex64" else np.array(SPECIAL, dtype_)
    for low, high in ((-0.0, 1.0), (0.0, 1.0), (-1.0, -0.0), (np.nan, 1.0), (0.0, np.nan)):
        bounds = np.asarray(low, dtype_), np.asarray(high, dtype_)
        assert_alike("clip", run(KERNELS["clip"], x, *bounds), expected("clip", x, *bounds))
    zeros = np.zeros(3, np.int64)
    assert_alike("clip", run(KERNELS["clip"], zeros, np.asarray(-0.0), np.asarray(1.0)), np.clip(zeros, -0.0, 1.0))


@pytest.mark.parametrize(
    ("limits", "name"),
    pairs_of([("complex64", 88.0, 90.0), ("complex128", 709.0, 711.0)], ["sin", "cosh", "sinh", "cos"]),
)
def test_large_sines_and_cosines_are_finite_as_long_as_numpys(run, name, limits):
    dtype, first, last = limits
    large = np.linspace(first, last, 4_099)
    x = (0.7 + 1j * large if name in ("sin", "cos") else large + 0.7j).astype(dtype)
    with np.errstate(over="ignore"):  # of long doubles, since NumPy's own lose up to 10 bits here
        reference = getattr(np, name)(x.astype(np.clongdouble)).astype(dtype)
    result = run(KERNELS[name], x, mesh={"x": 3})
    for actual, expected in ((result.real, reference.real), (result.imag, reference.imag)):
        # At the limit itself the last bits decide.
        near = np.abs(expected) > 0.999 * np.finfo(expected.dtype).max
        np.testing.assert_allclose(actual[~near], expected[~near], rtol=8 * np.finfo(expected.dtype).eps)

"""Infinities, NaN, signs of zeros, the largest and subnormal numbers, also in parts of complex numbers, as in NumPy.

Functions that compare, choose or round are exact for subnormal numbers, which XLA:CPU otherwise treats as zero.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest
from kernels.conftest import KERNELS

SPECIAL = (0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan)


def grid(dtype, parts, count=4_099):
    return np.resize(np.array([complex(a, b) for a, b in itertools.product(parts, repeat=2)], dtype), count)


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


def test_integer_powers_are_products(run):
    x = grid(np.complex128, [0.0, 1.0, -2.5], 9)
    exponents = np.array([0, 1, 2, 3, 4, 7, 99, -1, -2, -99], complex)
    x, y = (a.ravel() for a in np.meshgrid(x, exponents))
    result, reference = run(KERNELS["power"], x, y), expected("power", x, y)
    np.testing.assert_allclose(result, reference, rtol=1e-13)
    assert run(KERNELS["power"], np.array([1 + 1j]), np.array(2 + 0j)) == 2j


@pytest.mark.parametrize("dtype_", ["float32", "complex64"])
def test_scalar_bounds_leave_zeros_of_either_sign(run, dtype_):
    x = grid(np.complex64, SPECIAL, 49) if dtype_ == "complex64" else np.array(SPECIAL, dtype_)
    for low, high in ((-0.0, 1.0), (0.0, 1.0), (-1.0, -0.0), (np.nan, 1.0), (0.0, np.nan)):
        bounds = np.asarray(low, dtype_), np.asarray(high, dtype_)
        assert_alike("clip", run(KERNELS["clip"], x, *bounds), expected("clip", x, *bounds))
    zeros = np.zeros(3, np.int64)
    assert_alike("clip", run(KERNELS["clip"], zeros, np.asarray(-0.0), np.asarray(1.0)), np.clip(zeros, -0.0, 1.0))


REDUCTIONS = ("max", "min", "argmax", "argmin", "any", "all")
WIDE, NARROW = ("float32", "float64"), ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def edges(dtype):
    """Zeros, the smallest and largest subnormal numbers, the smallest normal one, 1 and NaN, of both signs."""
    info = ml_dtypes.finfo(dtype)
    subnormal, normal = float(info.smallest_subnormal), float(info.smallest_normal)
    some = np.array([0, subnormal, 2 * subnormal, normal - subnormal, normal, 1])
    return np.concatenate([some, -some, [np.nan]]).astype(dtype)


def triples(dtype, count=4_099):
    """All pairs of `edges`, repeated with every third one."""
    x, y, z = zip(*((x, y, z) for x, y in itertools.product(edges(dtype), repeat=2) for z in edges(dtype)), strict=True)
    return [np.resize(np.array(some, dtype), count) for some in (x, y, z)]


@pytest.mark.parametrize("dtype_", WIDE)
def test_reductions_are_exact_for_subnormal_numbers(run, dtype_):
    x = np.stack(triples(np.dtype(dtype_))[:2]).T  # rows of two
    x = x[~np.isnan(x).any(axis=1)]
    column = x[np.isin(x[:, 0], edges(dtype_)[1:3]), :1]
    run.check_together(
        (run.call(KERNELS[name], array, mesh={"x": 2}, axis=axis, strategy=one.name), expected(name, array, axis=axis))
        for name in REDUCTIONS
        for array, axis in ((x, 1), (column, 0))
        for one in KERNELS[name].strategies
    )


@pytest.mark.parametrize("dtype_", ["complex64", "complex128"])
def test_parts_of_complex_numbers_may_be_subnormal(run, same, dtype_):
    parts = edges(np.empty(0, dtype_).real.dtype)
    every = np.array([complex(a, b) for a, b in itertools.product(parts, repeat=2)], dtype_)
    x, y = (a.ravel() for a in np.meshgrid(every, every))

    def compare(result, reference):
        same(result.real, reference.real)
        same(result.imag, reference.imag)

    calls = []
    for name in ("less", "equal", "maximum", "logical_and", "where"):
        operands = (x, y, x[::-1].copy())[: len(KERNELS[name].operands)]
        calls.append((run.call(KERNELS[name], *operands), expected(name, *operands)))
    run.check_together(calls, compare)


def test_a_subnormal_float32_is_a_normal_float64(run):
    x, y = triples(np.dtype(np.float32))[:2]
    y = y.astype(np.float64) * (1 + 2**-30)
    y = np.where(abs(y) < 1e-300, 0, y)
    names = ("less", "equal", "fmin", "multiply")
    run.check_together((run.call(KERNELS[name], x, y, mesh={"x": 2}), expected(name, x, y)) for name in names)

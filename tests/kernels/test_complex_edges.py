"""Infinities, NaN, signs of zeros, and the largest and small numbers in parts of complex numbers, as in NumPy."""

import itertools

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

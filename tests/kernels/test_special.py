"""Functions of mathematical physics are within a few units of extended precision; parts of floats are exact."""

import numpy as np
import pytest
from accuracy.references import of_physics
from kernels.conftest import KERNELS

RANDOM = np.random.default_rng(4)


def units(result, name, x):
    """The largest error of a function in units in the last place."""
    expected, _ = of_physics(name, x)
    spacing = np.spacing(np.abs(expected).astype(result.dtype)).astype(np.longdouble)
    return float((np.abs(result.astype(np.longdouble) - expected) / spacing).max())


ERF_POINTS = np.concatenate([RANDOM.uniform(-6, 6, 3000), 10.0 ** RANDOM.uniform(-300, 0, 1096)])
GAMMA_POINTS = np.concatenate([RANDOM.uniform(low, high, 800) for low, high in ((0, 0.5), (2.5, 10), (10, 1e4))])


@pytest.mark.parametrize(("name", "points", "bound"), [("erf", ERF_POINTS, 2), ("gammaln", GAMMA_POINTS, 4)])
def test_functions_are_within_a_few_units_of_extended_precision(run, name, points, bound):
    for dtype, limit in ((np.float64, bound), (np.float32, 0.6)):
        x = points.astype(dtype)
        x = x[np.abs(x) > np.finfo(np.float32).tiny] if dtype == np.float32 else x
        result = run(KERNELS[name], x, mesh={"x": 8}, padding=np.nan)
        assert result.dtype == dtype
        assert units(result, name, x) <= limit


def test_the_zeros_of_gammaln_have_all_digits(run):
    z = RANDOM.uniform(-1, 1, 1000) * 10.0 ** RANDOM.uniform(-12, -4, 1000)
    for point in (1.0, 2.0):
        x = point + z
        assert units(run(KERNELS["gammaln"], x, mesh={"x": 8}), "gammaln", x) <= 8


def floats(values, dtype):
    """Numbers of every exponent, zeros, infinities, NaN, and the least and greatest numbers of a type."""
    info = np.finfo(dtype)
    x = np.concatenate([values.any((821,), dtype), values.normal((200,), dtype)])
    ends = [0, -0.0, np.inf, -np.inf, np.nan]
    ends += [info.smallest_subnormal, -3 * info.smallest_subnormal, info.tiny, info.max]
    x[: len(ends)] = ends
    return x


@pytest.mark.parametrize("dtype_", ["float16", "float32", "float64"])
def test_parts_of_floats_are_numpys(run, values, dtype_):
    x = floats(values, np.dtype(dtype_))
    mantissas, exponents = run(KERNELS["frexp"], x, mesh={"x": 8}, padding=np.nan)
    with np.errstate(invalid="ignore"):
        expected = np.frexp(x)
    same_bits(mantissas, expected[0])
    np.testing.assert_array_equal(exponents, expected[1])
    assert exponents.dtype == np.int32


def same_bits(result, expected):
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), ~is_number)
    assert result[is_number].tobytes() == expected[is_number].tobytes()

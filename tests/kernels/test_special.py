"""Functions of mathematical physics are within a few units of extended precision; parts of floats are exact."""

import math

import numpy as np
import pytest

from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
RANDOM = np.random.default_rng(4)
WIDE = np.longdouble
PI = WIDE(math.pi) + WIDE(1.2246467991473532e-16)
GAMMA = WIDE(0.5772156649015329) - WIDE(4.942915152430645e-18)
# ζ(2), ζ(3), ζ(4) and ζ(5), to extended precision where it matters
ZETAS = (PI**2 / 6, WIDE(1.2020569031595942), PI**4 / 90, WIDE(1.03692775514337))


def erf_of(x):
    """The error function: by its power series below 3, else by the continued fraction of what is left of 1."""
    x = x.astype(WIDE)
    size = np.abs(x)
    small, large = np.where(size < 3, size, 0), np.where(size < 3, 3, size)
    term, total, fraction = small.copy(), small.copy(), WIDE(0) * large
    for n in range(1, 120):
        term = -term * small * small / n
        total = total + term / (2 * n + 1)
    for k in range(200, 0, -1):
        fraction = (WIDE(k) / 2) / (large + fraction)
    rest = 1 - np.exp(-large * large) / (np.sqrt(PI) * (large + fraction))
    return np.sign(x) * np.where(size < 3, total * 2 / np.sqrt(PI), rest)


def gammaln_of(x):
    """The logarithm of the gamma function of positive numbers, by Stirling's series from 40 on and the recurrence."""
    rest, product = x.astype(WIDE), np.ones(x.shape, WIDE)
    for _ in range(40):
        product = np.where(rest < 40, product * rest, product)
        rest = np.where(rest < 40, rest + 1, rest)
    terms = (WIDE(1) / 12, -WIDE(1) / 360, WIDE(1) / 1260, -WIDE(1) / 1680, WIDE(1) / 1188, -WIDE(691) / 360360)
    series = sum(term / rest ** (2 * k + 1) for k, term in enumerate(terms))
    return (rest - WIDE(0.5)) * np.log(rest) - rest + np.log(2 * PI) / 2 + series - np.log(product)


def units(result, expected):
    """The largest error in units in the last place."""
    spacing = np.spacing(np.abs(expected).astype(result.dtype)).astype(WIDE)
    return float((np.abs(result.astype(WIDE) - expected) / spacing).max())


ERF_POINTS = np.concatenate([RANDOM.uniform(-6, 6, 3000), 10.0 ** RANDOM.uniform(-300, 0, 1096)])
GAMMA_POINTS = np.concatenate([RANDOM.uniform(low, high, 800) for low, high in ((0, 0.5), (2.5, 10), (10, 1e4))])


@pytest.mark.parametrize(
    ("name", "points", "reference", "bound"),
    [("erf", ERF_POINTS, erf_of, 2), ("gammaln", GAMMA_POINTS, gammaln_of, 4)],
)
def test_functions_are_within_a_few_units_of_extended_precision(run, name, points, reference, bound):
    for dtype, limit in ((np.float64, bound), (np.float32, 0.6)):
        x = points.astype(dtype)
        x = x[np.abs(x) > np.finfo(np.float32).tiny] if dtype == np.float32 else x
        result = run(KERNELS[name], x, mesh={"x": 8}, padding=np.nan)
        assert result.dtype == dtype
        assert units(result, reference(x)) <= limit


def test_the_zeros_of_gammaln_have_all_digits(run):
    z = RANDOM.uniform(-1, 1, 1000) * 10.0 ** RANDOM.uniform(-12, -4, 1000)
    for point in (1.0, 2.0):
        x = point + z
        d = (x - point).astype(WIDE)
        expected = -GAMMA * d + sum(zeta * (-d) ** k / k for k, zeta in enumerate(ZETAS, 2))
        result = run(KERNELS["gammaln"], x, mesh={"x": 8})
        assert units(result, expected + (np.log1p(d) if point == 2 else 0)) <= 8


def floats(values, dtype):
    """Numbers of every exponent, zeros, infinities, NaN, and the least and greatest numbers of a type."""
    info = np.finfo(dtype)
    x = np.concatenate([values.any((821,), dtype), values.normal((200,), dtype)])
    ends = [
        0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        info.smallest_subnormal,
        -3 * info.smallest_subnormal,
        info.tiny,
        info.max,
    ]
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

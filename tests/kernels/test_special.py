"""Functions of mathematical physics are within a few units of extended precision; parts of floats are exact."""

import math

import ml_dtypes
import numpy as np
import pytest

from shardcall_core.call_error import CallError, Reason
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


def test_gammaln_of_negative_numbers_and_its_limits(run):
    x = RANDOM.uniform(-30, 0, 999)
    expected = np.array([math.lgamma(item) for item in x])
    result = run(KERNELS["gammaln"], x, mesh={"x": 8})
    np.testing.assert_array_less(np.abs(result - expected), 16 * 2.0**-52 * np.maximum(1, np.abs(expected)))
    ends = np.array([0, -0.0, -1, -2, -171, -1e300, 1e306, np.inf, -np.inf, np.nan])
    expected = [np.inf] * 8 + [-np.inf, np.nan]  # SciPy's
    np.testing.assert_array_equal(run(KERNELS["gammaln"], ends), expected)


def test_types_are_scipys(run):
    for dtype in (np.float16, np.int8, np.bool_, ml_dtypes.bfloat16, np.uint64):
        x = np.arange(2).astype(dtype)
        for name, expected in (("erf", math.erf(1)), ("gammaln", 0.0)):
            result = run(KERNELS[name], x)
            assert result.dtype == np.float64
            np.testing.assert_allclose(result[1], expected, rtol=1e-15)
    with pytest.raises(CallError) as raised:
        run.resolve(KERNELS["erf"], np.zeros(2, complex))
    assert raised.value.reason == Reason.UNSUPPORTED_ELEMENT_TYPE


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


@pytest.mark.parametrize("dtype_", ["float16", "float32", "float64"])
def test_powers_of_two_are_numpys(run, values, dtype_):
    x = floats(values, np.dtype(dtype_))
    reach = 2 * np.finfo(x.dtype).maxexp + 60
    powers = np.concatenate([RANDOM.integers(-reach, reach, len(x) - 2), [2**62, -(2**62)]])
    with np.errstate(all="ignore"):
        expected = np.ldexp(x, powers)
    same_bits(run(KERNELS["ldexp"], x, powers, mesh={"x": 8}, padding=0), expected)
    result = run(KERNELS["ldexp"], x[:, None], np.arange(3, dtype=np.int8), mesh={"x": 3}, in_specs=[("x", None)])
    with np.errstate(all="ignore"):
        same_bits(result, np.ldexp(x[:, None], np.arange(3, dtype=np.int8)))


def same_bits(result, expected):
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), ~is_number)
    assert result[is_number].tobytes() == expected[is_number].tobytes()

"""The tests of `test_special.py` that take long."""

import math

import ml_dtypes
import numpy as np
import pytest
from kernels.test_special import KERNELS, RANDOM, floats, same_bits

from shardcall_core.call_error import CallError, Reason

pytestmark = pytest.mark.long


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

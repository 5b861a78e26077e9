"""Sorts and takes in every layout, and of special numbers."""

import numpy as np
import pytest
from kernels import test_sorts as short
from kernels.conftest import assert_same_bits, with_cases
from kernels.test_sorts import KERNELS, LAYOUTS

from shardcall_core.element_types import NAMED

pytestmark = pytest.mark.long

test_takes_are_numpys = with_cases(short.test_takes_are_numpys, {"layout": LAYOUTS})
test_sorts_are_numpys = with_cases(short.test_sorts_are_numpys, {"layout": LAYOUTS})


@pytest.mark.parametrize("name", ["bfloat16", "float32", "complex128", "float16", "float64", "complex64"])
def test_sorts_of_special_numbers(run, values, name):
    dtype = NAMED[name]
    subnormals = values.subnormal((4,), np.empty(0, dtype).real.dtype).astype(float)
    numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, *subnormals]
    x = np.array([complex(a, b) for a in numbers for b in numbers] if dtype.kind == "c" else numbers * 4).astype(dtype)
    x = values.random.permutation(x)
    expected = np.argsort(x.astype(complex if dtype.kind == "c" else float), stable=True)
    np.testing.assert_array_equal(run(KERNELS["argsort"], x, mesh={"x": 3}), expected)
    result = run(KERNELS["sort"], x, mesh={"x": 3})
    if dtype.kind == "c":
        assert_same_bits(result, x[expected])
        return
    ordered = x[np.lexsort((~np.signbit(x), x.astype(float)))]  # -0.0 before 0.0
    numbers = ~np.isnan(ordered)
    assert_same_bits(result[numbers], ordered[numbers])
    assert np.isnan(result[~numbers]).all()

"""The tests of `test_creation.py` that take long."""

import numpy as np
import pytest
from kernels.test_creation import KERNELS, LAYOUTS, STARTS

from shardcall_core.element_types import NAMED

pytestmark = pytest.mark.long


@pytest.mark.parametrize("to_type", [np.float32, np.float64, np.complex128])
def test_linspace_is_numpys(run, same_bits, to_type):
    cases = []
    for (start, step), (mesh, out_specs) in zip(STARTS, LAYOUTS, strict=True):
        for size in (1, 4099):
            first, last = (to_type(value) for value in (start, start + 97 * step))
            by = (last - first) / to_type(max(size - 1, 1))
            expected = np.arange(size).astype(to_type) * by + first
            ends = [first, by] + [last] * (size > 1)
            if size > 1:
                expected[-1] = last
            call = run.call(KERNELS["linspace"], *ends, mesh=mesh, out_specs=out_specs or (), size=size)
            cases.append((call, expected))
    run.check_together(cases, same_bits)


SHARDED = [({"x": 3}, ["x", None]), ({"a": 2, "b": 2}, [("b", "a"), None])]


@pytest.mark.parametrize("layout", SHARDED)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64", "float32"])
def test_nextafter_is_numpys(run, values, name, layout):
    dtype = NAMED[name]
    x, y = (values.any((13, 5), dtype) for _ in range(2))
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype)
    x[0], y[1], x[2] = ends, ends, np.nextafter(dtype.type(0), dtype.type(1))
    y[2], y[3], x[4] = ends, x[3], -x[2]
    y[4] = 1
    with np.errstate(all="ignore"):  # NaN and the smallest numbers, of which some types and processors warn
        expected, expected_of_row = np.nextafter(x, y), np.nextafter(x, y[0])
    mesh, spec = layout
    actual = run(KERNELS["nextafter"], x, y, mesh=mesh, in_specs=[spec], padding=np.nan)
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))
    number = ~np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(actual[number]), np.signbit(expected[number]))
    actual = run(KERNELS["nextafter"], x, y[0], mesh={"x": 2})
    np.testing.assert_array_equal(actual.astype(np.float64), expected_of_row.astype(np.float64))


@pytest.mark.parametrize("layout", SHARDED)
@pytest.mark.parametrize("name", ["float32", "float64"])
def test_complex_numbers_have_every_bit_of_their_parts(run, name, layout):
    dtype = np.dtype(name)
    x, y = np.random.default_rng(3).standard_normal((2, 1031, 5)).astype(dtype)
    x[:5], y[1:6] = np.diag(ends := np.array([0, -0.0, np.inf, np.nan, np.nextafter(dtype.type(0), 1)], dtype)), ends
    mesh, spec = layout
    for imaginary in (y, y[0], y[0, 1]):
        actual = run(KERNELS["complex"], x, imaginary, mesh=mesh, in_specs=[spec])
        expected = np.empty(x.shape, np.result_type(dtype, np.complex64))
        expected.real, expected.imag = x, imaginary
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual.view(f"u{dtype.itemsize}"), expected.view(f"u{dtype.itemsize}"))

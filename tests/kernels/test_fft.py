"""The rows of the table for Fourier transforms give NumPy's results in every layout."""

import numpy as np
import pytest
from kernels.conftest import KERNELS, LAYOUTS

from shardcall_core.layouts.layout import ArrayType

TRANSFORMS = ("fft", "ifft", "rfft", "irfft")
HOWS = [{"axis": 0, "norm": "backward", "n": None}, {"axis": -1, "norm": "ortho", "n": 12}]


def close(actual, expected):
    """Checks shape and type, and that errors are within a few units of the largest value."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    eps = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=0, atol=16 * eps * np.max(np.abs(expected), initial=0))


def transforms(run, x, layout, hows):
    """Calls of every transform, and NumPy's results."""
    mesh, spec = layout
    for name in TRANSFORMS:
        for how in hows:
            call = run.call(KERNELS[name], x, mesh=mesh, in_specs=[spec[: x.ndim]], **how)
            yield call, getattr(np.fft, name)(x, **how)


@pytest.mark.parametrize("number", range(len(LAYOUTS)))
def test_transforms_are_numpys(run, values, number):
    x = values.normal((5, 4, 9), np.float64)
    run.check_together(transforms(run, x, LAYOUTS[number], [HOWS[number % 2]]), close, np.nan)


def test_transforms_of_nothing(run):
    run.check_together(transforms(run, np.zeros((0, 5)), ({"x": 3}, ()), [{}]), close)


def test_the_strategy_follows_the_layout(run):
    x, row = ArrayType((16, 6), np.dtype("float32")), ArrayType((16,), np.dtype("float32"))
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
    assert run.resolve(KERNELS["fft"], x, **how).strategy.name == "blocks"
    assert "all-" not in run.program(KERNELS["fft"], x, **how).text
    assert run.resolve(KERNELS["fft"], x, **how, axis=0).strategy.name == "all_to_all"
    text = run.program(KERNELS["fft"], x, **how, axis=0).text
    assert "all-to-all" in text
    assert "all-gather" not in text
    assert run.resolve(KERNELS["fft"], row, mesh={"x": 8}).strategy.name == "one_device"

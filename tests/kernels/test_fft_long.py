"""The tests of `test_fft.py` that take long."""

import numpy as np
import pytest
from kernels.test_fft import KERNELS, LAYOUTS, SHAPE, TRANSFORMS, close

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS)
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("n", [None, 1, 3, 16])
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_every_transform(run, values, mesh, spec, name, axis, n, norm):
    x = values.normal(SHAPE, np.float32)
    how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan, "axis": axis, "norm": norm, "n": n}
    close(run(KERNELS[name], x, **how), getattr(np.fft, name)(x, n, axis, norm))


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
def test_transforms_of_every_type(run, values, name, is_long):
    for dtype in (
        ("bool", "uint8", "int64", "float64", "complex64", "complex128") if is_long else ("float16", "float32")
    ):
        x = values.small((4099,), np.dtype(dtype))
        if name == "rfft" and dtype.startswith("complex"):
            continue
        wide = x.astype(np.float32) if dtype == "float16" else x  # NumPy scales by a number of the narrow type
        expected = getattr(np.fft, name)(wide).astype(getattr(np.fft, name)(x).dtype)
        close(run(KERNELS[name], x, mesh={"x": 3}), expected)

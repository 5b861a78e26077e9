"""Fourier transforms along every axis, of every length and type."""

import numpy as np
import pytest
from kernels.test_fft import KERNELS, LAYOUTS, TRANSFORMS, close, transforms

pytestmark = pytest.mark.long


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_transform(run, values, layout, axis):
    x = values.normal((5, 4, 9))
    hows = [{"axis": axis, "n": n, "norm": norm} for n in (None, 1, 3, 16) for norm in ("backward", "ortho", "forward")]
    run.check_together(transforms(run, x, layout, hows), close, np.nan)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_every_type(run, values, name):
    cases = []
    for dtype in ("bool", "uint8", "int64", "float16", "float32", "float64", "complex64", "complex128"):
        x = values.small((4099,), np.dtype(dtype))
        if name == "rfft" and dtype.startswith("complex"):
            continue
        wide = x.astype(np.float32) if dtype == "float16" else x  # NumPy scales by a number of the narrow type
        expected = getattr(np.fft, name)(wide).astype(getattr(np.fft, name)(x).dtype)
        cases.append((run.call(KERNELS[name], x, mesh={"x": 3}), expected))
    run.check_together(cases, close)

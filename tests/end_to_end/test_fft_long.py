"""The tests of `test_fft.py` that take long."""

from __future__ import annotations

import numpy as np
import pytest
from end_to_end.test_fft import X

import shardcall as sc

pytestmark = pytest.mark.long

COMPLEX = X + 1j * np.random.default_rng(8).normal(size=X.shape)


OF_REALS = ("rfft", "rfftn", "rfft2", "ihfft")


TRANSFORMS = ("fft", "ifft", "irfft", "hfft", "fft2", "ifft2", "fftn", "ifftn", "irfft2", "irfftn", *OF_REALS)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_numpys(client, name):
    x, transform = X if name in OF_REALS else COMPLEX, getattr(np.fft, name)
    result = transform(client.put(x, mesh=sc.Mesh(x=8)))
    expected = transform(x)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(result.get(), expected, rtol=1e-12, atol=1e-12)


def test_options_of_transforms_are_numpys(client):
    h = client.put(COMPLEX, mesh=sc.Mesh(x=8))
    for transform in (np.fft.fft, np.fft.ifft):
        for options in ({"n": 8}, {"axis": 0, "norm": "ortho"}):
            np.testing.assert_allclose(transform(h, **options).get(), transform(COMPLEX, **options), atol=1e-12)
    np.testing.assert_allclose(np.fft.fft2(h, (3, 8), (0, 2)).get(), np.fft.fft2(COMPLEX, (3, 8), (0, 2)), atol=1e-12)

"""NumPy's Fourier transforms of arrays on the mesh."""

from __future__ import annotations

import numpy as np

import shardcall as sc

X = np.random.default_rng(7).normal(size=(6, 5, 4))


def test_shifts_of_frequencies_are_numpys(client):
    h = client.put(X, mesh=sc.Mesh(x=8))
    for shift in (np.fft.fftshift, np.fft.ifftshift):
        assert np.array_equal(shift(h).get(), shift(X))
        assert np.array_equal(shift(h, (0, 2)).get(), shift(X, (0, 2)))
    assert np.array_equal(client.xp.fft.fftfreq(9, 0.5).get(), np.fft.fftfreq(9, 0.5))
    assert np.array_equal(client.xp.fft.rfftfreq(9, 0.5).get(), np.fft.rfftfreq(9, 0.5))

"""Running and windowed sums through the client to a real server, checked against NumPy."""

from __future__ import annotations

import numpy as np

import shardcall as sc
from shardcall import P


def test_cumsum_and_convolve_are_numpys(client):
    x, v, mesh = np.arange(27, dtype=np.int32).reshape(9, 3), np.array([1, 2, 3]), sc.Mesh(x=8)
    flat = client.cumsum(x, mesh=mesh)
    np.testing.assert_array_equal(flat.array, np.cumsum(x), strict=True)
    rows = client.cumsum(x, axis=0, dtype=np.int8, mesh=mesh, spec=P("x", None))
    np.testing.assert_array_equal(rows.array, np.cumsum(x, 0, np.int8), strict=True)
    smooth = client.convolve(x[:, 0], v, "same", mesh=mesh, spec=P("x"))
    np.testing.assert_array_equal(smooth.array, np.convolve(x[:, 0], v, "same"), strict=True)


def test_a_running_sum_that_stays_on_the_mesh_is_an_operand(client):
    x, mesh = np.arange(27).reshape(9, 3), sc.Mesh(x=8)
    sums = client.cumsum(x, mesh=mesh, keep=True).array
    np.testing.assert_array_equal(client.diff(sums, prepend=0).array, x.ravel(), strict=True)

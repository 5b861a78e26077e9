"""The tests of `test_padding.py` that take long."""

import warnings

import numpy as np
import pytest
from end_to_end.test_padding import MESH, X
from rows import one_in

import shardcall as sc

pytestmark = pytest.mark.long

I = np.random.default_rng(4).integers(-9, 9, (5, 6))  # noqa: E741


C = np.array([1, 2j, 3 - 1j], "c8")


@pytest.fixture(scope="module")
def put(server):
    with sc.connect(server.address, implicit_get="error") as client:
        yield lambda x: client.put(x, mesh=MESH)


CASES = {
    "constants": (X, (1, 2), {"constant_values": (4, 5)}),
    "constants of axes": (I, ((0, 2), (1, 0)), {"constant_values": ((4, 5), (6, 7))}),
    "constants of another type": (I.astype("u1"), 1, {"constant_values": (300, 5)}),
    "a constant of each axis": (I, 2, {"constant_values": ((3,), (4,))}),
    "constants around nothing": (X[:0], 1, {"constant_values": (1, 2)}),
    "edge": (X, ((2, 0), (0, 3)), {"mode": "edge"}),
    "one number for each axis": (I, ((1,), (2,)), {}),
    "empty": (X, 0, {"mode": "empty"}),
    "ramps": (X, ((2, 3), (1, 2)), {"mode": "linear_ramp", "end_values": ((1, -5), (0, 2))}),
    "ramps of integers": (I, 3, {"mode": "linear_ramp", "end_values": (30, -5)}),
    "ramps of bool": (I > 0, 2, {"mode": "linear_ramp"}),
    "maximum": (X, ((2, 3), (0, 2)), {"mode": "maximum"}),
    "minimum of some": (X, 2, {"mode": "minimum", "stat_length": ((2, 3), (1, 4))}),
    "mean": (X.astype("f4"), {0: 2, 1: (1, 0)}, {"mode": "mean", "stat_length": 4}),
    "mean of integers": (I, 2, {"mode": "mean"}),
    "mean of bool": (I > 0, 2, {"mode": "mean", "stat_length": 2}),
    "mean of complex numbers": (C, 2, {"mode": "mean"}),
    "median": (X, 2, {"mode": "median", "stat_length": (3, 20)}),
    "median of integers": (I, (3, 1), {"mode": "median"}),
    "reflect": (X, 3, {"mode": "reflect", "reflect_type": "even"}),
    "reflect, odd": (X, ((4, 3), (0, 5)), {"mode": "reflect", "reflect_type": "odd"}),
    "reflect, odd and wide": (I[:3], ((9, 7), (0, 0)), {"mode": "reflect", "reflect_type": "odd"}),
    "reflect, odd, of one": (I[:1], 2, {"mode": "reflect", "reflect_type": "odd"}),
    "symmetric, odd": (X, ((0, 3), (5, 2)), {"mode": "symmetric", "reflect_type": "odd"}),
    "symmetric, odd and wide": (I[:2], ((7, 3), (0, 0)), {"mode": "symmetric", "reflect_type": "odd"}),
    "symmetric, odd, of bool": (I[:, 0] > 0, 4, {"mode": "symmetric", "reflect_type": "odd"}),
    "wrap": (X, 7, {"mode": "wrap"}),
    "mean of nothing": (X[:0], ((0, 0), (1, 1)), {"mode": "mean"}),
    "maximum without axes": (np.array(2.0), 1, {"mode": "maximum"}),
    "many": (np.arange(4096.0), (5, 9), {"mode": "linear_ramp"}),
}


@pytest.mark.parametrize("name", one_in(2, CASES))
def test_padded_arrays_are_numpys(put, name):
    x, width, how = CASES[name]
    with warnings.catch_warnings(action="ignore"):
        expected = np.pad(x, width, **how)
    h = np.pad(put(x), width, **how)
    assert (h.dtype, h.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(h.get(), expected, rtol=1e-6 if x.dtype.itemsize < 8 or x.dtype.kind == "c" else 1e-12)

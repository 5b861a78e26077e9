"""The tests of `test_numpys_arguments.py` that take long."""

import array

import numpy as np
import pytest
from end_to_end.test_numpys_arguments import MESH, SMALL, X, check

pytestmark = pytest.mark.long


class Convertible:
    """An array of another library: NumPy asks it for one of its own."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1, 2], np.int8)


def test_numbers_beside_buffers_and_foreign_arrays(client):
    for x, number in (
        *((memoryview(np.array([250, 2], np.uint8)), 10), (array.array("f", [1, 2]), 1.5)),
        *((array.array("b", [1, 2]), 300), (bytearray(b"ab"), 3), (Convertible(), 1), (Convertible(), 300)),
    ):
        check(client, "add", x, number)
        check(client, "max", x, initial=number)
        check(client, "clip", x, 1, number)


def test_reductions_of_some_elements(client):
    mask = X % 2 > 0
    check(client, "sum", X, axis=0, where=mask, initial=2.5, on=MESH)
    check(client, "max", X, axis=0, where=mask[0], initial=-1, on=MESH)
    check(client, "mean", X, axis=1, where=mask, keepdims=True, on=MESH)
    check(client, "all", X, where=mask, on=MESH)
    check(client, "sum", X, where=True)
    check(client, "sum", X, axis=0, keepdims=1)
    check(client, "max", SMALL, initial=9.7)
    check(client, "sum", SMALL.astype(np.int8), dtype="int16", initial=np.int64(300))
    check(client, "std", X, ddof=0.5)


def test_sums_that_begin_with_negative_zero(client):
    for dtype in (np.float16, np.float32, np.float64, np.complex128):
        x = np.full((19, 3), -0.0, dtype)
        x[5, 1], x[7, 2] = 0.0, 3
        initial = dtype(complex(-0.0, -0.0) if dtype is np.complex128 else -0.0)
        for on in (MESH, {}):
            for arguments in ({}, {"where": x == 0}, {"where": np.zeros((19, 3), bool)}):
                total = client.sum(x, axis=0, initial=initial, **arguments, **on).array
                assert total.tobytes() == np.sum(x, axis=0, initial=initial, **arguments).tobytes()
        assert not np.signbit(client.sum(x, axis=0, **MESH).array.real).any()


def test_reductions_of_scalars(client):
    for name in ("max", "sum", "any", "argmax", "mean", "var"):
        for axis in (0, -1, 1, None):
            check(client, name, 1, axis=axis)
    check(client, "min", 1, axis=(0,))
    check(client, "argmin", np.float32(3), axis=-1, keepdims=True)


def test_integers_beyond_the_type(client):
    for number in (2**63, 2**64, -(2**63) - 1, 10**100):
        check(client, "add", np.ones(2, np.int64), number)
    for name, number in (("add", 300), ("multiply", -1), ("maximum", 300), ("left_shift", -3), ("power", -1)):
        check(client, name, SMALL, number)
    check(client, "add", 2**63, 1)
    for name in ("divide", "hypot", "arctan2", "copysign", "float_power", "maximum", "less", "equal"):
        check(client, name, 2**63, 1)
    check(client, "less", -(2**70), 2**65)
    check(client, "clip", 7, -(2**70), 2**70)
    for name in ("less", "equal", "greater_equal"):
        for number in (300, -1, 2**64 - 1, 2**70, -(10**400)):
            check(client, name, SMALL, number)
            check(client, name, SMALL.astype(np.int64), number)


def test_shifts_by_any_integer_type(client):
    dtypes = [np.dtype(code) for code in "bBhHiIlL?"]
    for x in dtypes:
        for y in (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.uint64)):
            check(client, "left_shift", np.ones(2, x), np.ones(2, y))


def test_rolls_along_several_axes(client):
    for shift, axis in ((1, None), ((1, -2), (0, 1)), ((1, 2), 0), ((1, 2, 3), (0, 1)), (1, 2), (1, "0")):
        check(client, "roll", X, shift, axis, on=MESH)
    check(client, "roll", 5, 1)
    check(client, "roll", 5, 1, 0)

"""Arguments that NumPy takes and refuses: methods take them alike, and raise NumPy's builtin classes."""

import array

import numpy as np
import pytest

import shardcall as sc
from shardcall import P

MESH = {"mesh": sc.Mesh(a=4, b=2), "spec": P("a", "b")}
X = np.arange(57.0).reshape(19, 3) % 7
ERRORS = (np.exceptions.AxisError, OverflowError, TypeError, ValueError)
SMALL = np.arange(12, dtype=np.uint8)


def check(client: sc.Client, name: str, *operands, on=None, **arguments) -> None:
    """The method's result is that of NumPy's function; or both raise, and the client the class that NumPy raises."""
    try:
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(*operands, **arguments)
    except (ValueError, TypeError, OverflowError) as error:
        error_class = next(error_class for error_class in ERRORS if isinstance(error, error_class))
        with pytest.raises(error_class) as caught:
            getattr(client, name)(*operands, **arguments, **(on or {}))
        assert isinstance(caught.value, sc.ShardcallError)
        return
    actual = getattr(client, name)(*operands, **arguments, **(on or {})).array
    np.testing.assert_allclose(actual, expected, rtol=1e-14, strict=True)


def test_reductions_of_integers_that_begin_with_floats(client):
    for initial in (2.5, np.float32(-3.0), np.inf, -np.inf, np.nan, 300.7):
        for name in ("sum", "prod", "max", "min"):
            check(client, name, np.array([1, 2], np.int8), initial=initial)
    check(client, "sum", np.array([True]), initial=np.inf)


def test_doubles_are_rounded_once_to_halves(client):
    for x in ([65519.999999], [2049.000000001], [1 + 2.0**-11 + 2.0**-30]):
        for name in ("sum", "cumsum", "prod"):
            check(client, name, np.array(x), dtype="float16")


def test_what_reductions_refuse(client):
    for arguments in (
        {"where": X > 2},
        {"initial": 3, "where": np.ones((2, 19, 3), bool)},
        {"initial": 3, "where": np.ones(2, bool)},
        {"initial": 1j},
        *({"axis": axis} for axis in ("invalid", 1.5, True, 2, (0, -2))),
    ):
        check(client, "max", X, **arguments)
    for initial in (300, -1):
        check(client, "min", SMALL, initial=initial)
    check(client, "min", SMALL.astype(np.int8), initial=np.int64(300))
    check(client, "argmax", X, axis=(0,))
    check(client, "sum", X, dtype="nonsense")


def test_reductions_of_nothing(client):
    for shape, axis in (((0,), None), ((0, 3), 0), ((0, 3), 1), ((0, 3), (0, 1)), ((0, 0), 0), ((2, 0), 1)):
        for name in ("max", "argmin"):
            if name == "max" or not isinstance(axis, tuple):
                check(client, name, np.zeros(shape), axis=axis)
    check(client, "max", np.zeros((0, 3)), axis=0, initial=5)
    check(client, "prod", np.zeros((0, 3)), axis=0, initial=5)
    check(client, "sum", np.zeros((0, 3)), axis=0, where=[True, False, True])


def test_clips_beyond_the_type(client):
    for bounds in ((-1, 129), (-1, 300), (-1, None), (None, 300), (300, 400), (-5, -1), (None, -1), (-1.5, 3)):
        check(client, "clip", SMALL, *bounds)
    check(client, "clip", SMALL, -1, np.arange(12))
    check(client, "clip", SMALL > 3, -1, 3)
    check(client, "clip", X.astype(np.float32), -(2**70), 2**70)


def test_ramps_beyond_the_type_wrap(client):
    # Numbers, as those of NumPy differ between processors.
    for dtype, end, ramp in (
        ("uint8", 300, [44, 150]),
        ("int8", 300, [44, -106]),
        ("uint64", -2, [2**64 - 2, 2**64 - 1]),
    ):
        padded = np.pad(client.put(SMALL[:2].astype(dtype)), (2, 0), "linear_ramp", end_values=end)
        np.testing.assert_array_equal(padded.get(), np.array([*ramp, 0, 1], dtype), strict=True)


def test_operands_of_the_wrong_number(client):
    for spacing in ([np.arange(5.0)], [1.0, 2.0, 3.0], [1.0, np.ones((2, 2))], [1.0, np.ones(3)]):
        with pytest.raises((TypeError, ValueError)) as expected:
            np.gradient(np.ones((5, 5)), *spacing)
        with pytest.raises(expected.type) as caught:
            client.gradient(np.ones((5, 5)), *spacing)
        assert caught.value.field.startswith("spacing")
    for name in ("gradient", "laplacian"):
        with pytest.raises(sc.OperandCountError, match=r"needs operand 'spacing\[0\]', which is None or was left out"):
            client.call(name, np.ones((5, 5)), None, 1.0)
    with pytest.raises(sc.OperandCountError, match="y is None"):
        client.add(X, None)


def test_modes_of_convolutions(client):
    for mode in (0, 1, 2, 3, -1, 1.5, None, True, "same", "nonsense"):
        check(client, "convolve", X[:, 0], np.array([1.0, 2.0, 4.0, 8.0]), mode=mode)
    check(client, "convolve", X[:, 0], 2)
    check(client, "convolve", np.int32(3), 2)


def test_einsum_of_many_arrays(client):
    a, b = X[:5], np.arange(6.0).reshape(3, 2)
    check(client, "einsum", "ij,jk,kl->il", a, b, b.T)
    check(client, "einsum", "ij,j,j,j->i", a, X[0], X[1], X[2], on={"mesh": MESH["mesh"], "lhs_spec": P("a", None)})
    check(client, "einsum", "ij,jk,kl->il", a, b)
    check(client, "einsum", "ij,jk,kl->il", a, b, b)


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


def test_sums_that_begin_with_negative_zero(client):
    for dtype in (np.float16, np.complex128):
        x = np.full((19, 3), -0.0, dtype)
        x[5, 1], x[7, 2] = 0.0, 3
        initial = dtype(complex(-0.0, -0.0) if dtype is np.complex128 else -0.0)
        for arguments in ({}, {"where": x == 0}, {"where": np.zeros((19, 3), bool)}):
            total = client.sum(x, axis=0, initial=initial, **arguments, **MESH).array
            assert total.tobytes() == np.sum(x, axis=0, initial=initial, **arguments).tobytes()
        assert not np.signbit(client.sum(x, axis=0, **MESH).array.real).any()


def test_integers_beyond_all_types(client):
    for number in (2**63, 2**64, -(2**63) - 1, 10**100):
        check(client, "add", np.ones(2, np.int64), number)
    for name in ("divide", "hypot", "maximum", "less", "equal"):
        check(client, name, 2**63, 1)
    for name in ("less", "equal"):
        for number in (300, -1, 2**64 - 1, -(10**400)):
            check(client, name, SMALL, number)

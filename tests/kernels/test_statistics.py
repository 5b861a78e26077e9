"""The rows of the table for running products, counts and positions give NumPy's results in every layout."""

import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
LAYOUTS = [({"x": 8}, ("x", None)), ({"x": 3}, (None, "x")), ({"a": 2, "b": 2}, ("b", "a"))]
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0)


@pytest.mark.parametrize(("layout", "axis"), pairs_of(LAYOUTS, [-1, 0, None]))
def test_running_products_are_numpys(run, values, layout, axis):
    mesh, spec = layout
    x = values.normal((5, 9), np.float64)
    actual = run(KERNELS["cumprod"], x, mesh=mesh, in_specs=[spec], padding=np.nan, axis=axis)
    np.testing.assert_allclose(actual, np.cumprod(x, axis), rtol=1e-14)


def test_running_products_of_every_type(run, values, same, dtype):
    x = values.small((4, 4), dtype)
    wide = np.float32 if "float" in dtype.name and dtype.itemsize < 4 else np.cumprod(x).dtype
    expected = np.cumprod(x.astype(wide), 0).astype(np.cumprod(x).dtype)
    same(run(KERNELS["cumprod"], x, mesh={"x": 3}, axis=0), expected)


def test_running_products_of_scalars_and_nothing(run, same):
    for x in (np.float32(3), np.zeros((0, 3)), np.zeros((3, 0), np.int8)):
        for axis in (None, 0):
            same(run(KERNELS["cumprod"], np.asarray(x), mesh={"x": 3}, axis=axis), np.cumprod(x, axis))
    x = np.linspace(0.9, 1.1, 4099)
    np.testing.assert_allclose(run(KERNELS["cumprod"], x, mesh={"x": 3}), np.cumprod(x), rtol=1e-12)


@pytest.mark.parametrize(("layout", "side"), pairs_of(LAYOUTS, ["left", "right"]))
def test_positions_are_numpys(run, values, same, layout, side):
    mesh, spec = layout
    a = np.sort(np.concatenate([np.round(values.normal((60,)), 1), SPECIAL]).astype(np.float32))
    v = np.concatenate([np.round(values.normal((57,)), 1), SPECIAL]).reshape(7, 9)
    names = next(filter(None, spec))
    how = {"mesh": mesh, "in_specs": [(names,), spec], "padding": -np.inf, "side": side}
    same(run(KERNELS["searchsorted"], a, v, **how), np.searchsorted(a, v, side))


def test_positions_of_every_type(run, values, same, dtype):
    a, v = np.sort(values.small((40,), dtype)), values.small((4099,), dtype)
    wide = complex if dtype.kind == "c" else float
    a = np.sort(a.astype(wide)).astype(dtype)
    same(run(KERNELS["searchsorted"], a, v, mesh={"x": 3}), np.searchsorted(a.astype(wide), v.astype(wide)))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 63, 64, 4095, 4099])
def test_positions_among_any_count_of_numbers(run, values, same, count):
    a = np.sort(values.normal((count,), np.float64))
    v = np.concatenate([a, values.normal((4099,), np.float64), [np.inf, -np.inf, np.nan, 0.0, -0.0]])
    for side in ("left", "right"):
        same(run(KERNELS["searchsorted"], a, v, mesh={"x": 3}, side=side), np.searchsorted(a, v, side))


@pytest.mark.parametrize(
    "numbers",
    [
        np.array([-np.inf, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1e-310, 1.0, np.inf, np.nan, np.nan]),
        np.array([-np.inf, -1e-45, -0.0, 0.0, 1e-45, 1.0, np.inf, np.nan], np.float32),
        np.array([0, 1, 2**63, 2**64 - 2, 2**64 - 1, 2**64 - 1], np.uint64),
        np.array([-(2**63), -1, 0, 2**63 - 1, 2**63 - 1], np.int64),
        np.array([False, True, True]),
    ],
    ids=lambda numbers: numbers.dtype.name,
)
def test_positions_among_the_extremes(run, same, numbers):
    for a in (numbers, numbers[1:3], numbers[-1:]):
        for side in ("left", "right"):
            same(run(KERNELS["searchsorted"], a, numbers, mesh={"x": 3}, side=side), np.searchsorted(a, numbers, side))


def test_positions_of_two_types(run, same):
    a, v = np.arange(5, dtype=np.int64), np.array([2.5, -1, 7, 3], np.float32)
    same(run(KERNELS["searchsorted"], a, v, mesh={"x": 2}), np.searchsorted(a, v))
    same(run(KERNELS["searchsorted"], a[:0], v, mesh={"x": 2}), np.searchsorted(a[:0], v))


@pytest.mark.parametrize("spec", ["x", None])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_counts_are_numpys(run, values, spec, is_weighted):
    x, weights = values.random.integers(0, 20, 4099), values.normal((4099,))
    operands = (x, weights) if is_weighted else (x,)
    how = {"mesh": {"x": 8}, "in_specs": [(spec,)] * len(operands), "padding": 3}
    actual = run(KERNELS["bincount"], *operands, **how, length=25)
    expected = np.bincount(*operands, minlength=25)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "sharded"),
    pairs_of(
        ["uint64", "int64", "uint8", "int8", "bool"], [(40_003, {"x": 3}), (40_000, {"x": 8}), (40_003, {"x": 1})]
    ),
)
def test_counts_of_many_integers(run, values, same, name, sharded):
    size, mesh = sharded
    x = values.random.integers(0, 2, size).astype(name) if name == "bool" else values.random.integers(0, 99, size)
    for length in (0, 1, 99, 50_000):
        expected = np.bincount(x.astype(np.int64), minlength=length)[:length]
        same(run(KERNELS["bincount"], x.astype(name), mesh=mesh, padding=1, length=length), expected)


def test_counts_leave_out_integers_beyond_the_length(run, same):
    x = np.array([-1, 0, 2, 2, 9, 3], np.int8)
    same(run(KERNELS["bincount"], x, mesh={"x": 4}, length=3), np.array([1, 0, 2]))
    same(run(KERNELS["bincount"], x, mesh={"x": 1}, length=3), np.array([1, 0, 2]))
    same(run(KERNELS["bincount"], x, mesh={"x": 1}, length=0), np.zeros(0, np.int64))
    same(run(KERNELS["bincount"], x[:0], mesh={"x": 2}, length=2), np.zeros(2, np.int64))


def test_counts_of_sharded_integers_are_added(run):
    x = ArrayType((4096,), np.dtype("int32"))
    assert run.resolve(KERNELS["bincount"], x, mesh={"x": 8}, length=9).strategy.name == "exchange"
    text = run.program(KERNELS["bincount"], x, mesh={"x": 8}, length=9).text
    assert "all-gather" not in text
    assert "all-reduce" in text


@pytest.mark.parametrize(
    ("mesh", "spec"), [LAYOUTS[2], *(pytest.param(*case, marks=pytest.mark.long) for case in LAYOUTS)]
)
@pytest.mark.parametrize("number_type", [float, complex])
def test_interpolations_are_numpys(run, values, mesh, spec, number_type):
    x = np.concatenate([values.normal((57,), np.float32), SPECIAL]).reshape(7, 9)
    xp, fp = np.array([-1, 0, 0.5, 2]), np.array([3, np.inf, -1, 9] if number_type is float else [3, 1j, -1, 9 + 2j])
    how = {"mesh": mesh, "in_specs": [spec]}
    expected = [np.interp(x, xp, fp), np.interp(x, xp, fp, -7, np.nan)]
    actual = [run(KERNELS["interp"], x, xp, fp, **how)]
    actual.append(run(KERNELS["interp"], x, xp, fp, np.float64(-7), np.array(np.nan, fp.dtype), **how))
    for ours, numpys in zip(actual, expected, strict=True):
        assert ours.dtype == numpys.dtype
        np.testing.assert_allclose(ours, numpys, rtol=1e-13, atol=1e-13)


def test_a_part_of_an_interpolation_may_be_infinite(run):
    x, xp = np.array([0.25, 0.5, 1.5, 2.0]), np.array([0.0, 1.0, 2.0])
    fp = np.array([complex(0, 1), complex(-np.inf, 2), complex(3, np.inf)])
    np.testing.assert_array_equal(run(KERNELS["interp"], x, xp, fp), np.interp(x, xp, fp))


def test_an_interpolation_of_one_point_is_its_value(run):
    x, xp, fp = np.array([np.nan, -1.0, 2.0, 0.0]), np.zeros(1), np.ones(1)
    assert np.array_equal(run(KERNELS["interp"], x, xp, fp), np.interp(x, xp, fp))
    ends = run(KERNELS["interp"], x, xp, fp, np.float64(5), np.float64(7))
    assert np.array_equal(ends, np.interp(x, xp, fp, 5, 7))


def test_interpolations_between_many_points(run, values):
    x, xp = values.normal((4099,), np.float64), np.sort(values.normal((500,), np.float64))
    fp = values.normal((500,), np.float64)
    actual = run(KERNELS["interp"], x, xp, fp, mesh={"x": 3})
    np.testing.assert_allclose(actual, np.interp(x, xp, fp), rtol=1e-9, atol=1e-9)
    one = run(KERNELS["interp"], x, xp[:1], fp[:1], mesh={"x": 3})
    np.testing.assert_array_equal(one, np.interp(x, xp[:1], fp[:1]))


X, HALVES, COMPLEX = (ArrayType((5,), np.dtype(t)) for t in ("int64", "float16", "complex64"))
CUBE = ArrayType((2, 3, 4), np.dtype("float32"))


@pytest.mark.parametrize(
    ("name", "operands", "parameters", "field", "reason"),
    [
        ("cumprod", (CUBE,), {"axis": 3}, "axis", "AXIS_OUT_OF_RANGE"),
        ("cumprod", (COMPLEX,), {"dtype": "float32"}, "x", "UNSUPPORTED_ELEMENT_TYPE"),
        ("searchsorted", (CUBE, X), {}, "a", "INVALID_OPERAND"),
        ("searchsorted", (X, X), {"side": "both"}, "side", "INVALID_PARAMETER"),
        ("bincount", (HALVES,), {"length": 3}, "x", "UNSUPPORTED_ELEMENT_TYPE"),
        ("bincount", (X, CUBE), {"length": 3}, "weights", "INVALID_OPERAND"),
        ("bincount", (X, COMPLEX), {"length": 3}, "weights", "UNSUPPORTED_ELEMENT_TYPE"),
        ("bincount", (X,), {"length": -1}, "length", "INVALID_PARAMETER"),
        ("interp", (COMPLEX, X, X), {}, "x", "UNSUPPORTED_ELEMENT_TYPE"),
        ("interp", (X, CUBE, X), {}, "xp", "INVALID_OPERAND"),
        ("interp", (X, X, CUBE), {}, "fp", "INVALID_OPERAND"),
        ("interp", (X, X, X, X), {}, "left", "INVALID_OPERAND"),
    ],
)
def test_refusals_name_the_argument(refused, name, operands, parameters, field, reason):
    error = refused(KERNELS[name], *operands, mesh={"x": 2}, **parameters)
    assert (error.field, error.reason) == (field, Reason[reason])

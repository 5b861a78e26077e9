"""The rows of the table for running products, counts and positions give NumPy's results in every layout."""

import numpy as np
import pytest
from kernels.conftest import KERNELS

LAYOUTS = [({"x": 8}, ("x", None)), ({"x": 3}, (None, "x")), ({"a": 2, "b": 2}, ("b", "a"))]
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0)


@pytest.mark.parametrize("layout", LAYOUTS[2:])
def test_running_products_are_numpys(run, values, layout):
    mesh, spec = layout
    x, axes = values.normal((5, 9), np.float64), (-1, 0, None)
    calls = [run.call(KERNELS["cumprod"], x, mesh=mesh, in_specs=[spec], axis=axis) for axis in axes]
    for axis, actual in zip(axes, run.together(calls, np.nan), strict=True):
        np.testing.assert_allclose(actual, np.cumprod(x, axis), rtol=1e-14)


def test_running_products_of_scalars_and_nothing(run):
    arrays = [np.asarray(x) for x in (np.float32(3), np.zeros((0, 3)), np.zeros((3, 0), np.int8))]
    run.check_together(
        (run.call(KERNELS["cumprod"], x, mesh={"x": 3}, axis=axis), np.cumprod(x, axis))
        for x in arrays
        for axis in (None, 0)
    )


@pytest.mark.parametrize(("layout", "side"), [(LAYOUTS[2], "right")])
def test_positions_are_numpys(run, values, same, layout, side):
    mesh, spec = layout
    a = np.sort(np.concatenate([np.round(values.normal((60,)), 1), SPECIAL]).astype(np.float32))
    v = np.concatenate([np.round(values.normal((57,)), 1), SPECIAL]).reshape(7, 9)
    how = {"mesh": mesh, "in_specs": [(next(filter(None, spec)),), spec], "padding": -np.inf, "side": side}
    same(run(KERNELS["searchsorted"], a, v, **how), np.searchsorted(a, v, side))


def positions(run, table, mesh):
    """Calls of `searchsorted` on both sides, and NumPy's results."""
    for a, v in table:
        for side in ("left", "right"):
            yield run.call(KERNELS["searchsorted"], a, v, mesh=mesh, side=side), np.searchsorted(a, v, side)


@pytest.mark.parametrize("counts", [(1, 63)])
def test_positions_among_any_count_of_numbers(run, values, counts):
    table = []
    for count in counts:
        a = np.sort(values.normal((count,), np.float64))
        table.append((a, np.concatenate([a, values.normal((4099,), np.float64), [np.inf, -np.inf, np.nan, 0.0, -0.0]])))
    run.check_together(positions(run, table, {"x": 3}))


EXTREMES = [
    np.array([-np.inf, -1e-310, -0.0, 0.0, 5e-324, 1e-310, 1.0, np.inf, np.nan, np.nan]),
    np.array([-np.inf, -1e-45, -0.0, 0.0, 1e-45, 1.0, np.inf, np.nan], np.float32),
    np.array([0, 1, 2**63, 2**64 - 2, 2**64 - 1, 2**64 - 1], np.uint64),
    np.array([-(2**63), -1, 0, 2**63 - 1, 2**63 - 1], np.int64),
    np.array([False, True, True]),
]


def test_positions_among_the_extremes_and_of_two_types(run):
    table = [(a, numbers) for numbers in EXTREMES for a in (numbers, numbers[1:3], numbers[-1:])]
    a, v = np.arange(5, dtype=np.int64), np.array([2.5, -1, 7, 3], np.float32)
    run.check_together(positions(run, [*table, (a, v), (a[:0], v)], {"x": 3}))


@pytest.mark.parametrize("spec", ["x"])
def test_counts_are_numpys(run, values, spec):
    x, weights = values.random.integers(0, 20, 4099), values.normal((4099,))
    how = {"mesh": {"x": 8}, "length": 25}
    calls = [(x,), (x, weights)]
    results = run.together(
        [run.call(KERNELS["bincount"], *operands, **how, in_specs=[(spec,)] * len(operands)) for operands in calls], 3
    )
    for operands, actual in zip(calls, results, strict=True):
        np.testing.assert_allclose(actual, np.bincount(*operands, minlength=25), rtol=1e-12, atol=1e-12, strict=True)


@pytest.mark.parametrize(("name", "sharded"), [("int8", (40_003, {"x": 3}))])
def test_counts_of_many_integers(run, values, name, sharded):
    size, mesh = sharded
    x = values.random.integers(0, 2 if name == "bool" else 99, size)
    calls = []
    for length in (0, 1, 99, 50_000):
        call = run.call(KERNELS["bincount"], x.astype(name), mesh=mesh, length=length)
        calls.append((call, np.bincount(x, minlength=length)[:length]))
    run.check_together(calls, padding=1)


def test_counts_leave_out_integers_beyond_the_length(run):
    x = np.array([-1, 0, 2, 2, 9, 3], np.int8)
    table = [(x, 4, 3, [1, 0, 2]), (x, 1, 3, [1, 0, 2]), (x, 1, 0, []), (x[:0], 2, 2, [0, 0])]
    run.check_together(
        (run.call(KERNELS["bincount"], some, mesh={"x": devices}, length=length), np.array(counts, np.int64))
        for some, devices, length, counts in table
    )


@pytest.mark.parametrize("layout", LAYOUTS[2:])
def test_interpolations_are_numpys(run, values, layout):
    mesh, spec = layout
    x, xp = np.concatenate([values.normal((57,), np.float32), SPECIAL]).reshape(7, 9), np.array([-1, 0, 0.5, 2])
    calls, expected = [], []
    for fp in (np.array([3, np.inf, -1, 9]), np.array([3, 1j, -1, 9 + 2j])):
        for ends in ((), (np.float64(-7), np.array(np.nan, fp.dtype))):
            calls.append(run.call(KERNELS["interp"], x, xp, fp, *ends, mesh=mesh, in_specs=[spec]))
            expected.append(np.interp(x, xp, fp, *((-7, np.nan) if ends else ())))
    for ours, numpys in zip(run.together(calls), expected, strict=True):
        np.testing.assert_allclose(ours, numpys, rtol=1e-13, atol=1e-13, strict=True)


def test_a_part_of_an_interpolation_may_be_infinite(run):
    x, xp = np.array([0.25, 0.5, 1.5, 2.0]), np.array([0.0, 1.0, 2.0])
    fp = np.array([complex(0, 1), complex(-np.inf, 2), complex(3, np.inf)])
    np.testing.assert_array_equal(run(KERNELS["interp"], x, xp, fp), np.interp(x, xp, fp))


def test_an_interpolation_of_one_point_is_its_value(run):
    x, xp, fp = np.array([np.nan, -1.0, 2.0, 0.0]), np.zeros(1), np.ones(1)
    assert np.array_equal(run(KERNELS["interp"], x, xp, fp), np.interp(x, xp, fp))
    assert np.array_equal(run(KERNELS["interp"], x, xp, fp, np.float64(5), np.float64(7)), np.interp(x, xp, fp, 5, 7))


def test_interpolations_between_many_points(run, values):
    x, xp = values.normal((4099,), np.float64), np.sort(values.normal((500,), np.float64))
    fp = values.normal((500,), np.float64)
    actual = run(KERNELS["interp"], x, xp, fp, mesh={"x": 3})
    np.testing.assert_allclose(actual, np.interp(x, xp, fp), rtol=1e-9, atol=1e-9)

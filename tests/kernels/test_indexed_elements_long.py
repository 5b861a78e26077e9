"""The tests of `test_indexed_elements.py` that take long."""

import numpy as np
import pytest
from kernels.test_indexed_elements import KERNELS, LAYOUTS, SHAPE, some, with_values

pytestmark = pytest.mark.long

FULL = slice(None)


def test_every_bit_of_new_elements_is_kept(run, values, dtype):
    x, new, indices = values.any((7, 4), dtype), values.any((3, 4), dtype), np.array([1, 3, 5])
    actual = run(KERNELS["put_at"], x, new, indices, mesh={"x": 1}, axes=(0,))
    assert actual.tobytes() == with_values(x, indices, new).tobytes()


AT = [
    ((0,), 0, [(3,)]),
    ((1,), 1, [(2, 3)]),
    ((1,), 0, [(2,)]),
    ((0, 2), 0, [(2, 1), (3,)]),
    ((0, 1), 1, [(6,), (6,)]),
    ((0, 1, 2), 0, [(4,), (), (4,)]),
    ((0,), 0, [(0,)]),
]


def at(values, axes, position, shapes):
    """The indices of a call, and the elements of x there by NumPy's rules with the indices' axes at the position."""
    indices = [
        values.random.integers(-SHAPE[axis], SHAPE[axis], shape) for axis, shape in zip(axes, shapes, strict=True)
    ]
    indices = [np.asarray(index) for index in indices]
    key = [FULL] * 3
    for axis, index in zip(axes, indices, strict=True):
        key[axis] = index
    count = np.broadcast(*indices).ndim
    numpys = axes[0] if list(axes) == list(range(axes[0], axes[-1] + 1)) else 0
    source, target = range(numpys, numpys + count), range(position, position + count)
    return indices, tuple(key), lambda a: np.moveaxis(a, source, target), lambda a: np.moveaxis(a, target, source)


def test_every_bit_is_kept_of_elements_that_are_put_along_an_axis(run, values, dtype):
    x, new, indices = values.any((7, 4), dtype), values.any((2, 4), dtype), values.random.integers(0, 7, (2, 4))
    expected = x.copy()
    np.put_along_axis(expected, indices, new, 0)
    assert run(KERNELS["put_along_axis"], x, new, indices, mesh={"x": 3}, axis=0).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("axes", "position", "shapes", "mesh", "spec"), some(AT))
def test_elements_at_indices(run, values, same, mesh, spec, axes, position, shapes):
    x = values.normal(SHAPE)
    indices, key, there, back = at(values, axes, position, shapes)
    how = {"mesh": mesh, "padding": np.nan, "axes": axes, "position": position}
    taken = run(KERNELS["take_at"], x, *indices, in_specs=[spec], **how)
    same(taken, there(x[key]))
    new = values.normal(taken.shape)
    expected = with_values(x, key, back(new))
    same(run(KERNELS["put_at"], x, new, *indices, in_specs=[spec], **how), expected)


@pytest.mark.parametrize(
    ("mode", "function"),
    [*zip(("add", "multiply", "min", "max"), (np.add, np.multiply, np.minimum, np.maximum), strict=True)],
)
def test_updates_at_equal_indices_add_up(run, values, mode, function):
    x, indices, new = values.normal(SHAPE), values.random.integers(-5, 5, (7, 1)), np.asarray(2.0)
    expected = x.copy()
    function.at(expected, (indices,), new)
    how = {"mesh": {"x": 3}, "in_specs": [(None, None, "x")], "axes": (0,), "mode": mode}
    np.testing.assert_allclose(run(KERNELS["put_at"], x, new, indices, **how), expected, rtol=1e-13)


def test_updates_of_every_type(run, values, dtype):
    x, new, indices = values.small((7,), dtype), values.small((3,), dtype), np.array([2, 5, -1])
    wide = complex if dtype.kind == "c" else float
    for mode, function in (("add", np.add), ("multiply", np.multiply)):
        actual = run(KERNELS["put_at"], x, new, indices, mesh={"x": 2}, axes=(0,), mode=mode)
        expected = x.astype(bool if dtype == np.bool_ else wide)
        expected[indices] = function(expected[indices], new.astype(expected.dtype))
        np.testing.assert_array_equal(
            actual, expected.astype(int).astype(dtype) if dtype.kind in "iu" else expected.astype(dtype)
        )


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS[1::2])
def test_indices_that_are_not_zero(run, values, same, mesh, spec):
    x = np.round(values.normal(SHAPE))
    x[1, 2, 3], x[0, 0, :2] = np.nan, (0.0, -0.0)
    expected = np.flatnonzero(x)
    how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan}
    same(run(KERNELS["flatnonzero"], x, **how, size=len(expected)), expected)
    assert run.resolve(KERNELS["flatnonzero"], x, mesh={"x": 8}, size=9).strategy.name == "one_device"

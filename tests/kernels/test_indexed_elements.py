"""The rows of the table that take and replace elements at indices give NumPy's results in every layout."""

import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.type_cases import with_values

from shardcall_core.call_error import CallError

LAYOUTS = [
    ({"a": 2, "b": 2}, ("b", None, "a")),
    ({"x": 1}, (None, None, None)),
    ({"x": 8}, ("x", None, None)),
    ({"x": 3}, (None, "x", None)),
]
SHAPE = (5, 4, 9)
ALONG = [(-1, (5, 4, 3), (5, 4, 3)), (1, (1, 6, 9), (9,)), (0, (7, 1, 9), ()), (0, (0, 4, 9), (4, 1))]
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
        np.asarray(values.random.integers(-SHAPE[axis], SHAPE[axis], shape))
        for axis, shape in zip(axes, shapes, strict=True)
    ]
    key = [slice(None)] * 3
    for axis, index in zip(axes, indices, strict=True):
        key[axis] = index
    count = np.broadcast(*indices).ndim
    numpys = axes[0] if list(axes) == list(range(axes[0], axes[-1] + 1)) else 0
    source, target = range(numpys, numpys + count), range(position, position + count)
    return indices, tuple(key), lambda a: np.moveaxis(a, source, target), lambda a: np.moveaxis(a, target, source)


@pytest.mark.parametrize("layout", LAYOUTS[:1])
def test_elements_are_taken_and_put(run, values, layout):
    (mesh, spec), cases = layout, []
    for axis, shape, of_values in ALONG:
        x, new = values.normal(SHAPE), values.normal(of_values)
        indices = values.random.integers(-SHAPE[axis], SHAPE[axis], shape)
        changed = x.copy()
        np.put_along_axis(changed, indices, new, axis)
        call = run.call(KERNELS["put_along_axis"], x, new, indices, mesh=mesh, in_specs=[spec], axis=axis)
        cases.append((call, changed))
    for axes, position, shapes in AT:
        x, how = values.normal(SHAPE), {"mesh": mesh, "in_specs": [spec], "axes": axes, "position": position}
        indices, key, there, back = at(values, axes, position, shapes)
        taken = there(x[key])
        cases.append((run.call(KERNELS["take_at"], x, *indices, **how), taken))
        new = values.normal(taken.shape)
        cases.append((run.call(KERNELS["put_at"], x, new, *indices, **how), with_values(x, key, back(new))))
    run.check_together(cases, padding=np.nan)


def test_of_equal_indices_the_last_is_set(run, values):
    x, indices, new = np.zeros(50), values.random.integers(0, 9, 4096), values.normal((4096,))
    actual = run(KERNELS["put_at"], x, new, indices, mesh={"x": 4}, axes=(0,))
    np.testing.assert_array_equal(actual, with_values(x, indices, new))


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_indices_that_there_are_not_are_refused(run, values, index):
    x, indices = values.normal((4, 5)), np.array([0, index, 1])
    for name, operands in (("take_at", ()), ("put_at", (np.zeros(3),))):
        with pytest.raises(CallError, match="has an index that the axis of 5 elements") as raised:
            run(KERNELS[name], x, *operands, np.zeros(3, int), indices, mesh={"x": 3}, axes=(0, 1))
        assert raised.value.field == "indices[1]"

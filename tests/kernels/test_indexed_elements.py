"""The rows of the table that take and replace elements at indices give NumPy's results in every layout."""

import numpy as np
import pytest

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
LAYOUTS = [
    ({"x": 1}, (None, None, None)),
    ({"x": 8}, ("x", None, None)),
    ({"x": 3}, (None, "x", None)),
    ({"a": 2, "b": 2}, ("b", None, "a")),
]
SHAPE = (5, 4, 9)


def with_values(x, key, values):
    changed = x.copy()
    changed[key] = values
    return changed


def some(cases):
    """Every case in another layout; in the long form, every case in every layout."""
    return [
        pytest.param(*case, *layout, marks=() if (i + 1) % len(LAYOUTS) == j else pytest.mark.long)
        for i, case in enumerate(cases)
        for j, layout in enumerate(LAYOUTS)
    ]


ALONG = [(-1, (5, 4, 3), (5, 4, 3)), (1, (1, 6, 9), (9,)), (0, (7, 1, 9), ()), (0, (0, 4, 9), (4, 1))]


@pytest.mark.parametrize(("axis", "shape", "of_values", "mesh", "spec"), some(ALONG))
def test_elements_are_put_along_an_axis(run, values, same, mesh, spec, axis, shape, of_values):
    x, new = values.normal(SHAPE), values.normal(of_values)
    indices = values.random.integers(-SHAPE[axis], SHAPE[axis], shape)
    expected = x.copy()
    np.put_along_axis(expected, indices, new, axis)
    how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan, "axis": axis}
    same(run(KERNELS["put_along_axis"], x, new, indices, **how), expected)


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


X, INDICES, HALVES = (ArrayType((5, 4), np.dtype(t)) for t in ("float32", "int64", "float16"))
NONE = ArrayType((0, 4), np.dtype("float32"))


@pytest.mark.parametrize(
    ("name", "operands", "parameters", "field", "reason"),
    [
        ("take_at", (X, HALVES), {"axes": (0,)}, "indices[0]", "UNSUPPORTED_ELEMENT_TYPE"),
        ("take_at", (X, INDICES), {"axes": (0, 1)}, "axes", "INVALID_PARAMETER"),
        ("take_at", (X, INDICES), {"axes": (0,), "position": 2}, "position", "INVALID_PARAMETER"),
        ("take_at", (NONE, INDICES), {"axes": (0,)}, "x", "INVALID_OPERAND"),
        ("put_at", (X, X, INDICES), {"axes": (0,)}, "values", "INVALID_OPERAND"),
        ("put_at", (X, X, INDICES), {"axes": (0,), "mode": "xor"}, "mode", "INVALID_PARAMETER"),
        ("flatnonzero", (X,), {"size": 21}, "size", "INVALID_PARAMETER"),
        (
            "put_at",
            (INDICES, ArrayType((), np.dtype("complex64")), INDICES),
            {"axes": (0,)},
            "values",
            "UNSUPPORTED_ELEMENT_TYPE",
        ),
    ],
)
def test_refusals_name_the_argument(refused, name, operands, parameters, field, reason):
    error = refused(KERNELS[name], *operands, mesh={"x": 2}, **parameters)
    assert (error.field, error.reason) == (field, Reason[reason])

"""Refusals that depend on values, which are detected on every device, and never in padding."""

import numpy as np
import pytest
from kernels.conftest import KERNELS

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.authoring import CallError, Reason

POWER = KERNELS["power"]
X = np.arange(130, dtype=np.int8).reshape(26, 5) % 5
LAYOUTS = [
    ({"x": 1}, ()),
    ({"x": 8}, ()),
    ({"a": 4, "b": 2}, (None, ("a", "b"))),
    ({"a": 4, "b": 2}, (("a", None), (None, ("b", "a")))),
]


@pytest.mark.parametrize(("mesh", "in_specs"), LAYOUTS)
def test_a_negative_power_is_detected_on_every_device(run, same, mesh, in_specs):
    how = {"mesh": mesh, "in_specs": in_specs, "padding": -1}
    y = np.full_like(X, 2)
    same(run(POWER, X, y, **how), X**2)
    for index in ((0, 0), (13, 2), (25, 4)):
        y[index] = -1
        # In this process; end_to_end/test_value_checks_long.py tests the refusals of a server.
        with pytest.raises(CallError, match="y holds a negative integer") as refused:
            run.runner.run(run.kernel_case(POWER, X, y, mesh=mesh, in_specs=in_specs), (X, y), -1)
        assert (refused.value.reason, refused.value.field) == (Reason.INVALID_VALUE, "y")
        y[index] = 2


@pytest.mark.parametrize(("mesh", "in_specs"), LAYOUTS)
def test_a_mask_that_leaves_no_element_of_max_is_detected(run, same, mesh, in_specs):
    largest, how = KERNELS["max"], {"mesh": mesh, "in_specs": in_specs}
    for axis, index in ((1, 25), (0, (slice(None), 4)), (None, ...)):
        mask = np.arange(X.size).reshape(X.shape) % 3 != 0
        expected = np.max(X, axis, where=mask, initial=-128)
        same(run(largest, X, mask, axis=axis, **how, padding=1), expected)
        mask[index] = False
        with pytest.raises(CallError, match="where is true for no element, and there is no max of no elements"):
            run.runner.run(run.kernel_case(largest, X, mask, axis=axis, **how), (X, mask), 1)


def test_one_in_many_is_detected(run):
    y = np.zeros(5003, np.int16)
    case = run.kernel_case(POWER, y, y)
    for index in (0, 511, 512, 4999, 5002):
        y[index] = -3
        with pytest.raises(CallError, match="negative"):
            run.runner.run(case, (y, y))
        y[index] = 0
    run.runner.run(case, (y, y))


@pytest.mark.parametrize(
    ("x", "y", "count"),
    [("int8", "int8", 1), ("uint8", "int8", 1), ("bool", "bool", 1), ("uint8", "uint8", 0), ("int8", "float32", 0)],
)
def test_only_signed_powers_are_looked_at(run, x, y, count):
    operands = [ArrayType((3,), np.dtype(name)) for name in (x, y)]
    assert len(run.resolve(POWER, *operands).problem.checks) == count


def test_nothing_is_refused_of_no_elements(run, same):
    none = np.zeros(0, np.int8)
    same(run(POWER, none, np.array(-1, np.int8)), np.power(none, np.int8(-1)))


def test_a_bool_exponent_is_never_negative(run, same):
    x = np.array([True, False, True])
    same(run(POWER, x, x), np.power(x, x))

"""The tests of `test_reductions.py` that take long."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_reductions import KERNELS, MESH, check, expected
from pairs import pairs_of

from shardcall_core.call_error import CallError

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", KERNELS)
def test_every_element_type(run, values, name, dtype):
    x = values.small((19, 3), dtype)
    averages = name in ("mean", "var", "std")
    if averages and dtype.name in ("int4", "uint4"):
        with pytest.raises(CallError, match="give a dtype"):
            run.resolve(KERNELS[name], x)
        return
    if name == "prod":
        x = np.where(x == 0, np.ones((), dtype), x)[:4]
    check(run, name, x, ("a", None), "all_reduce", padding=1, axis=0)


MASKED = [name for name, kernel in KERNELS.items() if len(kernel.operands) > 1]


INITIAL = ("sum", "prod", "max", "min")


@pytest.mark.parametrize(("name", "strategy"), pairs_of(MASKED, ["gspmd", "all_reduce"]))
def test_elements_that_are_left_out_and_initial_values(run, values, name, strategy):
    axis = (None, 0, 1)[MASKED.index(name) % 3]
    dtype = ("float64", "complex64", "int16")[len(name) % 3]
    x, mask = (
        values.small((19, 5), np.dtype(dtype)),
        values.small(((19, 5), (5,), (19, 1))[len(name) % 3], np.dtype(bool)),
    )
    begun = name in INITIAL
    reference = expected(name, x, axis=axis, where=mask, **({"initial": 3} if begun else {}))
    operands = (x, mask, np.int8(3)) if begun else (x, mask)
    how = {"mesh": MESH, "in_specs": [("a", "b")], "axis": axis, "strategy": strategy, "padding": -1}
    actual = run(KERNELS[name], *operands, **how)
    assert (actual.shape, actual.dtype) == (reference.shape, reference.dtype)
    np.testing.assert_allclose(actual, reference, rtol=1e-6)


@pytest.mark.parametrize("strategy", ["gspmd", "all_reduce"])
@pytest.mark.parametrize("name", ["max", "argmax", "argmin"])
def test_nan_wins_and_the_first_of_equals_is_returned(run, name, strategy):
    x = np.array([[1, 3, -0.0], [3, np.nan, 0], [3, 1, -0.0], [np.nan, np.nan, 0], [1, 3, 0]], np.float32)
    check(run, name, x, ("a", None), strategy, axis=0)


@pytest.mark.parametrize("strategy", ["gspmd", "all_reduce"])
def test_complex_numbers_are_ordered_by_real_then_imaginary_part(run, values, strategy):
    x = values.small((19, 3), np.dtype(np.complex64))
    check(run, "argmin", x, ("a", "b"), strategy, axis=None)
    check(run, "max", x, ("a", "b"), strategy, axis=0)


def test_sums_of_a_dtype(run, values):
    x = values.small((19, 3), np.dtype(np.int8))
    check(run, "sum", x, ("a", None), "auto", padding=1, dtype="int8")
    check(run, "mean", x, ("a", None), "auto", padding=1, dtype="float32", axis=0)
    check(run, "sum", x, ("a", None), "auto", padding=1, dtype="bool", axis=0)
    check(run, "std", x, ("a", None), "auto", padding=1, ddof=1)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-(2**40), 2**40), min_size=37, max_size=37), st.sampled_from([2, 3, 8]))
def test_the_mesh_does_not_change_a_sum_of_integers(run, same, items, devices):
    x = np.array(items)
    same(run(KERNELS["sum"], x, mesh={"x": devices}), np.asarray(np.sum(x)))


@pytest.mark.parametrize(("dtype_", "count"), pairs_of(["float32", "float64"], [49, 98, 103, 107]))
def test_the_mean_of_what_is_alike_is_that(run, dtype_, count):  # the counts' reciprocals are rounded
    x = np.full(count, 3, dtype_)
    for name, reference in (("mean", 3), ("var", 0), ("std", 0)):
        assert run(KERNELS[name], x, mesh={"x": 8}) == reference


def test_any_number_may_be_taken_off_the_number_of_elements(run):
    x = np.arange(5, dtype=np.float32)
    for ddof in (10**300, -(10**300), 1e308, -1e308, 0.5):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of no degrees of freedom
            reference = np.var(x, ddof=float(ddof))
        np.testing.assert_array_equal(run(KERNELS["var"], x, mesh={"x": 2}, ddof=ddof), reference)


@pytest.mark.parametrize("devices", [1, 8])
def test_the_variance_of_numbers_far_from_zero_is_within_4_epsilons(run, values, devices):
    for _ in range(20):
        x = (10_000 + values.normal((1000,))).astype(np.float32)
        wide = x.astype(np.longdouble)
        reference = np.mean((wide - wide.mean()) ** 2)
        apart = abs(run(KERNELS["var"], x, mesh={"x": devices}) - reference) / reference
        assert apart <= 4 * np.finfo(np.float32).eps

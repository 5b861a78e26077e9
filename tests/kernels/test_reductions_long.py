"""The tests of `test_reductions.py` that take long."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest
from kernels.test_reductions import KERNELS, MESH, assert_reduced, expected, reduced, strategies

from shardcall_core.call_error import CallError

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", KERNELS)
def test_every_axis_and_layout(run, values, name):
    x, cases = values.normal((9, 5, 3)), []
    axes = (None, 0, 1, -1, *([] if name.startswith("arg") else [(0, 2), (2, 1), ()]))
    for spec in (("a", "b", None), (("b", "a"), None, None), (None, "a", "b"), (None, None, None)):
        for axis, keepdims, strategy in itertools.product(axes, (False, True), strategies(name)):
            cases.append(reduced(run, name, x, spec, strategy, axis=axis, keepdims=keepdims))
    run.check_together(cases, assert_reduced, np.nan)


def test_every_element_type(run, values, dtype):
    cases = []
    for name in KERNELS:
        x = values.small((19, 3), dtype)
        if name in ("mean", "var", "std") and dtype.name in ("int4", "uint4"):
            with pytest.raises(CallError, match="give a dtype"):
                run.resolve(KERNELS[name], x)
            continue
        if name == "prod":
            x = np.where(x == 0, np.ones((), dtype), x)[:4]
        served = [s for s in strategies(name) if s != "gspmd" and not (s == "gathered" and dtype.kind == "c")]
        cases += [reduced(run, name, x, ("a", None), strategy, axis=0) for strategy in served]
    run.check_together(cases, assert_reduced, 1)


MASKED = [name for name, kernel in KERNELS.items() if len(kernel.operands) > 1]


def test_elements_that_are_left_out_and_initial_values(run, values):
    cases = []
    for number, name in enumerate(MASKED):
        axis, dtype = (None, 0, 1)[number % 3], np.dtype(("float64", "complex64", "int16")[len(name) % 3])
        x, mask = values.small((19, 5), dtype), values.small(((19, 5), (5,), (19, 1))[len(name) % 3], np.dtype(bool))
        begun = name in ("sum", "prod", "max", "min")
        reference = expected(name, x, axis=axis, where=mask, **({"initial": 3} if begun else {}))
        operands, how = (x, mask, np.int8(3))[: 2 + begun], {"mesh": MESH, "in_specs": [("a", "b")], "axis": axis}
        cases += [
            (run.call(KERNELS[name], *operands, strategy=strategy, **how), reference) for strategy in strategies(name)
        ]
    run.check_together(cases, partial(np.testing.assert_allclose, rtol=1e-6, strict=True), -1)


def test_nan_wins_the_first_of_equals_is_returned_and_complex_numbers_are_ordered_by_part(run, values):
    x = np.array([[1, 3, -0.0], [3, np.nan, 0], [3, 1, -0.0], [np.nan, np.nan, 0], [1, 3, 0]], np.float32)
    z, cases = values.small((19, 3), np.dtype(np.complex64)), []
    for name in ("max", "argmax", "argmin"):
        cases += [reduced(run, name, x, ("a", None), strategy, axis=0) for strategy in strategies(name)]
    for strategy in ("gspmd", "all_reduce"):
        cases.append(reduced(run, "argmin", z, ("a", "b"), strategy, axis=None))
        cases.append(reduced(run, "max", z, ("a", "b"), strategy, axis=0))
    run.check_together(cases, assert_reduced, np.nan)


def test_sums_of_a_dtype(run, values):
    x = values.small((19, 3), np.dtype(np.int8))
    hows = {"sum": {"dtype": "int8"}, "mean": {"dtype": "float32", "axis": 0}, "std": {"ddof": 1}}
    cases = [reduced(run, name, x, ("a", None), "auto", **how) for name, how in hows.items()]
    cases.append(reduced(run, "sum", x, ("a", None), "auto", dtype="bool", axis=0))
    run.check_together(cases, assert_reduced, 1)


def test_the_mean_of_what_is_alike_is_that(run):
    arrays = [np.full(n, 3, dtype) for n in (49, 98, 103, 107) for dtype in ("float32", "float64")]  # 1 / n is rounded
    run.check_together(
        (run.call(KERNELS[name], x, mesh={"x": 8}), np.asarray(reference, x.dtype))
        for x in arrays
        for name, reference in (("mean", 3), ("var", 0), ("std", 0))
    )


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

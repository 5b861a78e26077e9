"""The references: extended precision is right to 60 bits, and errors are detected."""

import math
from functools import partial
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from accuracy import arrays, document, evaluation, points, references, ulps
from accuracy.ulps import Accuracy, measure
from rows import rows

DIGITS = mpmath.mp.clone()
DIGITS.prec = 200
REAL = {
    **{name: getattr(DIGITS, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "expm1", "log1p")},
    **{f"arc{name}": getattr(DIGITS, f"a{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "log": DIGITS.log,
    "log10": DIGITS.log10,
    "sqrt": DIGITS.sqrt,
    "cbrt": DIGITS.cbrt,
    "log2": lambda x: DIGITS.log(x) / DIGITS.log(2),
    "exp2": lambda x: DIGITS.power(2, x),
}
COMPLEX = sorted(set(REAL) - {"cbrt"})
ONLY = {"arcsin": (-1, 1), "arccos": (-1, 1), "arctanh": (-1, 1), "arccosh": (1, 50), "cbrt": (0, 50), "sqrt": (0, 50)}
ONLY |= dict.fromkeys(("log", "log2", "log10"), (0.01, 50)) | {"log1p": (-0.9, 50)}


@pytest.mark.parametrize("name", REAL)
def test_real_references_are_accurate_to_60_bits(name):
    x = np.random.default_rng(0).uniform(*ONLY.get(name, (-50, 50)), 50)
    result = references.reference(name, [x], x.dtype)
    for operand, value in zip(x, result, strict=True):
        expected = REAL[name](DIGITS.mpf(operand))
        assert abs(mpf(value) - expected) <= abs(expected) * 2.0**-60


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_references_are_accurate_to_58_bits(name):
    parts = np.random.default_rng(0).uniform(-20, 20, (2, 50))
    x = parts[0] + 1j * parts[1]
    result = references.reference(name, [x], x.dtype)
    for operand, value in zip(x, result, strict=True):
        expected = REAL[name](DIGITS.mpc(operand))
        assert abs(DIGITS.mpc(mpf(value.real), mpf(value.imag)) - expected) <= abs(expected) * 2.0**-58


def mpf(x):
    high = np.float64(x)
    return DIGITS.mpf(float(high)) + DIGITS.mpf(float(x - np.longdouble(high)))


def test_integers_wrap_and_are_cut_off():
    x, y = np.array([127, -128, -7, 7], np.int8), np.array([1, -1, 2, 0], np.int8)
    for name, expected in (("add", [-128, 127, -5, 7]), ("floor_divide", [127, -128, -4, 0]), ("fmod", [0, 0, -1, 0])):
        assert references.reference(name, [x, y], x.dtype).tolist() == expected


def test_an_error_of_one_unit_is_1_and_a_wrong_limit_is_seen():
    exact = np.array([1.0, np.inf, np.nan, 0.0, 2.0**-1074], np.longdouble)
    right = exact.astype(np.float64)
    assert measure(right, exact) == Accuracy(compared=5)
    assert measure(np.array([1 + 2.0**-52, *right[1:]]), exact).worst == 1
    assert measure(np.array([right[0], np.nan, *right[2:]]), exact).differ == 1
    assert measure(np.array([*right[:3], -0.0, right[4]]), exact).differ == 1
    assert measure(np.array([5, 6]), np.array([5, 7])).worst == math.inf


def test_units_are_those_of_the_largest_term_where_terms_cancel():
    one = np.array([1e-10], np.longdouble)
    error = ulps.errors(np.array([1e-10 + 2.0**-60]), one, np.array([1.0]))
    assert 0 < error[0] < 0.01


def test_subnormals_that_count_as_zero_are_noted_and_no_error():
    x = np.array([1.0, 2.0**-1070])
    result = measure(np.array([1.0, 0.0]), x.astype(np.longdouble), [x])
    assert (result.worst, result.results_flushed, result.operands_flushed) == (0, False, False)
    kept = measure(np.array([2.0**-1070]), np.array([2.0**-1070], np.longdouble), [np.array([2.0])])
    lost = measure(np.array([0.0]), np.array([1.5 * 2.0**-1023], np.longdouble), [np.array([2.0])])
    assert (kept.results_flushed, lost.results_flushed) == (False, True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_operands_hold_what_matters(dtype):
    dtype_ = np.dtype(dtype) if dtype != "bfloat16" else points.ml_dtypes.bfloat16
    (x,) = points.operands("sin", [np.dtype(dtype_)])
    parts = ulps.extended(x.view(x.real.dtype))
    info = points.finfo(np.dtype(dtype_))
    assert x.size >= points.COUNT
    assert np.isnan(parts).any()
    for value in (np.inf, -np.inf, info.max, info.tiny):
        assert (parts == float(value)).any()


def test_the_document_states_what_was_measured():
    table = {
        ("sin", "float32"): Accuracy(
            0.55, operands_flushed=True, differ=3, compared=65_537, differ_at=("(nan) → 1.0, not nan",)
        ),
        ("exp", "float32"): Accuracy(12345, results_flushed=True),
        ("diff, order 3", "integers"): Accuracy(math.inf),
    }
    once = document.generated(table, {})
    assert document.parsed(once)["sin", "float32"] == table["sin", "float32"]
    assert document.generated(document.parsed(once), {}) == once


@pytest.mark.parametrize(
    ("stated", "result", "row", "holds"),
    [
        (Accuracy(0.55), Accuracy(0.6), "sin", True),
        (Accuracy(0.55), Accuracy(0.7), "sin", False),
        (Accuracy(2.0), Accuracy(2.9), "sum", True),
        (Accuracy(2.0), Accuracy(3.1), "sum", False),
        (Accuracy(0.01), Accuracy(0.5), "sum", True),
        (Accuracy(0.01), Accuracy(0.6), "sum", False),
        (Accuracy(), Accuracy(0.5), "sum", False),
        (Accuracy(0.5), Accuracy(0.5, operands_flushed=True), "add", False),
        (Accuracy(0.5), Accuracy(0.5, results_flushed=True), "add", False),
        (Accuracy(0.5), Accuracy(0.5, differ=1, compared=4097), "sin", False),
        (Accuracy(0.5, differ=16, compared=65_537), Accuracy(0.5, differ=2, compared=4097), "sin", True),
        (Accuracy(0.5, differ=16, compared=65_537), Accuracy(0.5, differ=3, compared=4097), "sin", False),
    ],
)
def test_what_is_worse_than_stated_does_not_hold(stated, result, row, holds):
    assert document.holds(stated, result, row) is holds


def test_results_that_lost_digits_are_counted():
    x = np.array([1.0, 2.0])
    far = measure(x * [1, 1 + 20 * 2.0**-52], x.astype(np.longdouble), [x])
    assert (far.worst, far.differ, far.compared) == (20, 1, 2)


HEAD = {"jaxlib": "1", "processor": "A", "elements, other types": "7, 9"}


@rows(("changed", "refused"), [({}, False), ({"jaxlib": "2"}, False), ({"elements, other types": "9"}, True)])
def test_a_table_of_more_sizes_is_not_replaced(changed, refused):
    text = f"{document.BEGIN}\n\n{document.generated({}, HEAD)}\n\n{document.END}"
    stated = document.stated_conditions(text)
    assert stated == HEAD
    assert bool(document.refusal(stated, HEAD | changed)) is refused


@pytest.mark.parametrize(
    ("quick", "processor", "limits"),
    [(False, "avx512f", ()), (False, "avx2", ("AVX-512",)), (True, "avx2", ("--quick", "AVX-512"))],
)
def test_the_head_states_what_was_not_measured(monkeypatch, quick, processor, limits):
    monkeypatch.setattr(document, "_processor", lambda: processor)
    info = SimpleNamespace(devices=[SimpleNamespace(device_kind="cpu")])
    stated = document.conditions(info, partial(evaluation.sizes_of, quick=quick)).get("limits of this table", "")
    assert bool(stated) is bool(limits)
    assert all(limit in stated for limit in limits)


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64"])
def test_arrays_hold_special_values(dtype):
    values = arrays.Values(np.dtype(dtype))
    largest, normal, subnormal = points.extremes(values.dtype)
    for array in (values.spread(4097), values.rows(7)):
        parts = ulps.extended(array.ravel().view(array.real.dtype))
        assert np.isnan(parts).any()
        for value in (np.inf, -np.inf, largest, normal, subnormal):
            assert (parts == value).any()
        assert np.signbit(parts[parts == 0]).any()

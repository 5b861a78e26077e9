"""Every kernel is as accurate as docs/accuracy.md says, for every element type, at 4,096 elements and more."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from accuracy import arrays, document, elementwise, evaluation
from accuracy.elementwise import FLOATS, INTEGERS
from accuracy.together import run_together

from shardcall_core.element_types import NAMED
from shardcall_server.authoring.runner import use_virtual_devices
from shardcall_server.kernels.elementwise.ufuncs import UFUNCS
from shardcall_server.kernels.library import kernels

use_virtual_devices()

STATED = document.parsed((Path(__file__).resolve().parents[2] / "docs/accuracy.md").read_text())
SIZES = (4097,)
REAL = ("float32", "float64")
QUICK = (*REAL, "bfloat16", "int8")
HALVES = {"bfloat16": 0, "int8": 1}
"""Of narrow types, which are computed in wider ones, and of integers the short form has every second row."""
COLUMNS = [
    pytest.param(c, half, marks=() if c in QUICK and HALVES.get(c, half) == half else pytest.mark.long)
    for c in (*FLOATS, *INTEGERS)
    for half in (0, 1)
]
OF_INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift", "gcd", "lcm")
TARGETS = {"sinh": 4, "cosh": 4, "tanh": 2, "cbrt": 2}
TARGETS |= dict.fromkeys(("gradient, steps of 0.3", "gradient, coordinates"), 4)
DRAWN = {"uniform", "normal", "randint", "permutation"}
CREATED = {
    "full",
    "full_like",
    "arange",
    "linspace",
    "eye",
    "nextafter",
    "complex",
}  # tests/kernels/test_creation.py compares every bit
MOVED = {
    "setitem",
    "take_at",
    "put_at",
    "put_along_axis",
    "lexsort",
    "flatnonzero",
    "graph",
}  # they move elements, or run other kernels
SOLVED = {
    *("cholesky", "inv", "solve", "det", "slogdet", "eigh", "eigvalsh", "svd", "svdvals", "qr"),
}  # tests/kernels/test_linalg.py


def check(cases):
    with np.errstate(all="ignore"):
        cases, wrong = list(cases), {}
    for case, results in zip(cases, run_together(cases), strict=True):
        result_accuracy = evaluation.judged(case, results)
        stated = STATED[case.row, "integers" if case.column in INTEGERS else case.column]
        limit = TARGETS.get(case.row, math.inf) if case.column in REAL else math.inf
        if result_accuracy.worst > limit or not document.holds(stated, result_accuracy, case.row):
            wrong[case.row, case.column] = result_accuracy, stated
    assert not wrong


@pytest.mark.parametrize(("column", "half"), COLUMNS)
def test_elementwise_functions(column, half):
    names = [name for i, name in enumerate(UFUNCS) if half == (1 if name in OF_INTEGERS else i % 2)]
    check(case for name in names for case in elementwise.cases(name, NAMED[column], SIZES))


@pytest.mark.parametrize(("column", "half"), COLUMNS)
def test_other_kernels(column, half):
    check(itertools.islice(arrays.cases(NAMED[column], SIZES), half, None, 2))


def test_the_table_has_every_kernel():
    rows = {row.partition(",")[0] for row, _ in STATED}
    assert rows == {kernel.name for kernel in kernels()} - DRAWN - CREATED - MOVED - SOLVED


def test_the_table_keeps_what_was_promised():
    for row, limit in TARGETS.items():
        assert max(STATED[row, column].worst for column in REAL) <= limit

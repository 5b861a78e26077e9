"""Kernels and programs have the errors that docs/accuracy.md states: the tests of `test_accuracy.py` that take long."""

import itertools
import math

import numpy as np
import pytest
from accuracy import arrays, document, elementwise, evaluation, programs
from accuracy.elementwise import FLOATS, INTEGERS
from accuracy.test_accuracy import REAL, STATED, TARGETS
from kernels.together import run_together

from shardcall_core.element_types import NAMED
from shardcall_server.authoring.runner import kernel_case, use_virtual_devices
from shardcall_server.kernels.elementwise.ufuncs import UFUNCS
from shardcall_server.kernels.library import kernels

pytestmark = pytest.mark.long
use_virtual_devices()


KERNELS = {kernel.name: kernel for kernel in kernels()}
SIZES = (4097,)
COLUMNS = list(itertools.product((*FLOATS, *INTEGERS), (0, 1)))
"""The element types, each with the two halves of its rows."""
OF_INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift", "gcd", "lcm")


def check(cases):
    with np.errstate(all="ignore"):
        cases, calls, wrong = list(cases), [], {}
    for case in cases:
        operands = [None if operand is None else np.asarray(operand) for operand in case.operands]
        calls.append(
            (kernel_case(KERNELS[case.kernel], *operands, mesh={"x": 1}, parameters=case.parameters), operands)
        )
    for case, results in zip(cases, run_together(calls), strict=True):
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


OF_PROGRAMS = programs.parsed(document.PATH.read_text())


@pytest.mark.parametrize("name", programs.EXPRESSIONS)
def test_errors_are_those_of_the_table(client, name):
    for stated, error in zip(OF_PROGRAMS[name], programs.measured(client, name), strict=True):
        assert error <= 1.1 * stated + 0.01


@pytest.mark.parametrize("name", programs.EXPRESSIONS)
def test_exact_programs_are_the_calls_one_by_one(client, name):
    expression, arrays = programs.EXPRESSIONS[name], programs.operands("float64")
    alone = expression(client.xp, *map(client.put, arrays)).get()
    exact = client.jit(lambda x, y, z: expression(np, x, y, z), exact=True)
    assert np.array_equal(exact(*arrays).get(), alone)

"""The tests of `test_function_table.py` that take long."""

from itertools import product

import numpy as np
import pytest
from kernels.test_function_table import KERNELS, MESH, needed, request, types

from shardcall_core.call_error import CallError, Reason
from shardcall_server.compilation.resolve import resolve

pytestmark = pytest.mark.long

NEED_OTHER_SHAPES = (
    *("getitem", "setitem", "broadcast_to", "convolve"),
    *("interp", "bincount", "searchsorted", "graph"),
)


REPEATED = 3


NAMED = (Reason.OPERAND_COUNT, Reason.INVALID_OPERAND, Reason.INVALID_SHAPE, Reason.UNSUPPORTED_ELEMENT_TYPE)


ABOUT_OTHERS = (Reason.INVALID_PARAMETER, Reason.STRATEGY_UNSUPPORTED, Reason.AXIS_OUT_OF_RANGE)


def patterns(kernel):
    """Operands from none to one too many, in all combinations of a matrix, a scalar and None."""
    max_count = len(kernel.operands) + (REPEATED - 1 if kernel.operands and kernel.operands[-1].repeated else 1)
    for count in range(max_count + 1):
        yield from product(("array", "scalar", None), repeat=count)


def understood(kernel, operands):
    try:
        return resolve(kernel, request(kernel, operands), range(8)).problem
    except CallError as error:
        return error


def test_every_pattern_is_understood_or_refused_by_name():
    for kernel in KERNELS.values():
        check_patterns(kernel)


def check_patterns(kernel):
    served = 0
    for pattern in patterns(kernel):
        for dtype in ("float64", "int32"):
            operands = types(pattern, dtype)
            outcome = understood(kernel, operands)
            if isinstance(outcome, CallError):
                assert outcome.reason in (*NAMED, *ABOUT_OTHERS), (kernel.name, pattern, outcome)
                assert outcome.field, (kernel.name, pattern, outcome)
                continue
            served, problem = served + 1, outcome
            present = [operand for operand in operands if operand is not None]
            assert [operand for operand in problem.operands if operand is not None] == present
            assert all((o is None) == (s is None) for o, s in zip(problem.operands, problem.in_specs, strict=True))
    assert served or kernel.name in NEED_OTHER_SHAPES, kernel.name


def value(array_type):
    """An array of ones, or a positive definite matrix, which every kernel of linear algebra takes."""
    ones = np.ones(array_type.shape, array_type.dtype)
    return ones + np.eye(len(ones), dtype=array_type.dtype) if ones.ndim else ones


@pytest.mark.parametrize("name", KERNELS)
def test_all_that_is_understood_runs(run, name):
    kernel = KERNELS[name]
    for pattern in patterns(kernel):
        operands = types(pattern, "float32")
        if isinstance(understood(kernel, operands), CallError):
            continue
        program = run.program(kernel, *operands, mesh=MESH, **needed(kernel))
        values = [None if array_type is None else value(array_type) for array_type in operands]
        results = run.runner.run(run.kernel_case(kernel, *operands, mesh=MESH, **needed(kernel)), values)
        assert [r.shape for r in results] == [r.shape for r in program.resolved.problem.results]

"""Every kernel with every pattern of operands present, left out and scalar: a right answer or a refusal that names one.

The parameters are those of its example that a call needs, and no more.
"""

from itertools import product

import numpy as np
import pytest
from function_examples import example_call

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.function import REQUIRED
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.graphs.graph import Graph, Node, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.resolve import Request, resolve
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
NEED_OTHER_SHAPES = (
    "getitem",
    "setitem",
    "broadcast_to",
    "convolve",
    "interp",
    "bincount",
    "searchsorted",
    "graph",
)
NEGATIVE = Graph((Node("negative", (Value(-1, 0),)),), (Value(0, 0),))
MESH = {"x": 2}
REPEATED = 3
NAMED = (Reason.OPERAND_COUNT, Reason.INVALID_OPERAND, Reason.INVALID_SHAPE, Reason.UNSUPPORTED_ELEMENT_TYPE)
ABOUT_OTHERS = (Reason.INVALID_PARAMETER, Reason.STRATEGY_UNSUPPORTED, Reason.AXIS_OUT_OF_RANGE)


def patterns(kernel):
    """Operands from none to one too many, in all combinations of a matrix, a scalar and None."""
    max_count = len(kernel.operands) + (REPEATED - 1 if kernel.operands and kernel.operands[-1].repeated else 1)
    for count in range(max_count + 1):
        yield from product(("array", "scalar", None), repeat=count)


def types(pattern, dtype):
    shapes = {"array": (4, 4), "scalar": ()}
    return tuple(None if item is None else ArrayType(shapes[item], np.dtype(dtype)) for item in pattern)


def needed(kernel):
    required = [info.name for info in kernel.parameters if info.default is REQUIRED]
    _, parameters = example_call(kernel.name) if kernel.name in FUNCTIONS else ((), {"graph": NEGATIVE})
    return {name: parameters[name] for name in required}


def request(kernel, operands):
    return Request(needed(kernel), operands, MeshAxes(tuple(MESH.items())), (), (), (), "auto")


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


@pytest.mark.parametrize("name", ["gradient", "laplacian"])
def test_none_of_a_repeated_operand_is_left_out_before_another(name):
    kernel, dtype = KERNELS[name], "float64"
    with pytest.raises(CallError, match=r"'spacing\[0\]', which is None or was left out") as refused:
        resolve(kernel, request(kernel, types(("array", None, "scalar"), dtype)), range(8))
    assert (refused.value.reason, refused.value.field) == (Reason.OPERAND_COUNT, "spacing[0]")
    at_the_end = resolve(kernel, request(kernel, types(("array", None, None), dtype)), range(8))
    assert at_the_end.problem.operands == types(("array",), dtype)


def value(array_type):
    """An array of ones, or a positive definite matrix, which every kernel of linear algebra takes."""
    ones = np.ones(array_type.shape, array_type.dtype)
    return ones + np.eye(len(ones), dtype=array_type.dtype) if ones.ndim else ones


def compile_all(run, name):
    kernel = KERNELS[name]
    for pattern in patterns(kernel):
        operands = types(pattern, "float32")
        if isinstance(understood(kernel, operands), CallError):
            continue
        program = run.program(kernel, *operands, mesh=MESH, **needed(kernel))
        values = [None if array_type is None else value(array_type) for array_type in operands]
        results = run.runner.run(run.kernel_case(kernel, *operands, mesh=MESH, **needed(kernel)), values)
        assert [r.shape for r in results] == [r.shape for r in program.resolved.problem.results]


@pytest.mark.parametrize("name", ["shift", "laplacian"])
def test_what_is_understood_runs(run, name):
    compile_all(run, name)


@pytest.mark.long
@pytest.mark.parametrize("name", KERNELS)
def test_all_that_is_understood_runs(run, name):
    compile_all(run, name)

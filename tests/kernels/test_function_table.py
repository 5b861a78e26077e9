"""The table of functions: the signatures of the kernels, and arguments that are accepted or refused."""

import itertools
import math
import random
from contextlib import suppress

import numpy as np
import pytest
from function_examples import example_call
from kernels.conftest import KERNELS
from kernels.table_cases import MOVES, OTHERS

from shardcall_core.call_error import CallError, Reason
from shardcall_core.element_types import NAMED
from shardcall_core.functions.elementwise import BINARY
from shardcall_core.functions.function import REQUIRED
from shardcall_core.functions.reductions import REDUCTIONS
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.graphs.graph import Graph, Node, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.resolve import Request, resolve

SOME = ("bool", "int4", "uint8", "int32", "uint64", "float16", "bfloat16", "float64", "complex64")
PAIRS = [(name, name) for name in NAMED] + list(itertools.permutations(SOME, 2))
CUBE = (2, 3, 5)

CASES = {  # of functions whose operands depend on one another or on a parameter; others have their examples
    "diff": [
        (CUBE, None, None, {}),
        (CUBE, None, (), {"n": 2, "axis": 0}),
        (CUBE, (2, 4, 5), (), {"n": 3, "axis": 1}),
        ((3,), None, None, {"n": 9}),
    ],
    "gradient": [(CUBE, {"axis": (0, 2)}), ((3, 5), (), {}), ((3, 5), (3,), (), {"edge_order": 2})],
    "laplacian": [(CUBE, {}), (CUBE, (), (), {"axes": (0, -1), "boundary": "zero"})],
    "convolve": [
        (shape, (length,), {"mode": mode, "axis": axis})
        for shape, axis in ((CUBE, -1), ((7,), 0))
        for length in (1, 4, 9)
        for mode in ("full", "same", "valid", 0, 1, 2)
    ],
    "matmul": [
        *((lhs, rhs, {}) for lhs, rhs in (((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((6, 1, 2, 3), (7, 3, 4)))),
        ((3, 2), (4, 3), {"transpose_lhs": True, "transpose_rhs": True}),
        ((2, 3), (3, 4), {"preferred_element_type": "complex128"}),
    ],
    "einsum": [
        (*shapes, {"subscripts": subscripts})
        for subscripts, *shapes in (
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("...ii->...i", (6, 3, 3)),
            ("...,i...->...i", (1, 5), (2, 4, 5)),
            ("ij,jk,kl->li", (2, 3), (3, 4), (4, 6)),
        )
    ],
    **{name: [(*shapes, parameters) for shapes, parameters in calls] for name, calls in {**MOVES, **OTHERS}.items()},
    "setitem": [
        (CUBE, shape, (3,), {"sizes": (2, 1, 2), "steps": (-1, 1, 2), "dropped": 1, "inserted": (0, -1)})
        for shape in ((), (2, 2, 1), (1, 1, 2, 1))
    ],
    "take_at": [(CUBE, (2, 1), (7,), {"axes": (0, 2), "position": 1}), (CUBE, (), {"axes": (1,)})],
    "put_at": [(CUBE, (3, 7), (2, 1), (7,), {"axes": (0, 2)}), (CUBE, (), (4,), {"axes": (1,), "mode": "max"})],
    "put_along_axis": [(CUBE, (2, 3, 7), (2, 3, 7), {}), (CUBE, (5,), (1, 3, 5), {"axis": -2})],
    "solve": [((2, 3, 3), (3,), {}), ((2, 3, 3), (7, 1, 3, 2), {}), ((4, 4), (4, 0), {})],
    **{
        name: [(CUBE, CUBE), (CUBE, (5,)), ((), CUBE), ((3, 1), (1, 4)), ((0, 1), (1, 2)), ((2,), (3,))]
        for name in BINARY
    },
    **{name: [(CUBE, {}), (CUBE, {"axis": 1}), (CUBE, {"axis": -1, "keepdims": True})] for name in REDUCTIONS},
}


def example(name):
    operands, parameters = example_call(name)
    return (*(None if operand is None else operand.shape for operand in operands), parameters)


for name in FUNCTIONS:
    CASES.setdefault(name, [example(name)])


def test_the_table_has_the_signature_of_every_kernel():
    assert {*FUNCTIONS, "graph"} == set(KERNELS)
    for name, function in FUNCTIONS.items():
        kernel = KERNELS[name]
        expected = [(info.name, info.optional, info.repeated) for info in kernel.operands]
        assert [(o.name, o.optional, o.repeated) for o in function.operands] == expected
        assert function.defaults == {info.name: info.default for info in kernel.parameters}
        for count in (len(kernel.operands), 5):
            names = [info.name for info in kernel.operand_infos(count)]
            assert [function.operand_name(i) for i in range(len(names))] == names


@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_are_accepted_for_a_type(name):
    function, accepted = FUNCTIONS[name], 0
    for number, case in enumerate(CASES[name]):
        *shapes, parameters = case if isinstance(case[-1], dict) else (*case, {})
        pairs = PAIRS if len(shapes) > 1 else [(dtype, dtype) for dtype in NAMED]
        for first, second in pairs[number % 7 :: 7] if number else pairs:  # all types with the first case's shapes
            names = [first, *[second] * (len(shapes) - 1)]
            operands = [None if s is None else ArrayType(s, NAMED[n]) for s, n in zip(shapes, names, strict=True)]
            with suppress(CallError):
                accepted += all(result.dtype in NAMED.values() for result in function.results(operands, parameters))
    assert accepted


WRONG = [
    *(None, 0, 1, 2, -1, -3, 7, True, 1.5, math.nan, "full", "x", "zero", "same", "float32", "int64", "complex64"),
    *((0,), (0, 1), (-1, 5), (0, 0), (1, 2), ()),
]
SHAPES = [(), (1,), (2,), (3,), (5,), (0,), (2, 3), (3, 3), (3, 1), (4, 3), CUBE, (2, 1, 5), (6, 3, 3), (0, 2), (3, 0)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_faults_are_refused_by_the_name_of_an_argument(name):
    """Checks calls with a random fault: another type or shape of an operand, or another value of a parameter."""
    function, chance, refused = FUNCTIONS[name], random.Random(name), 0
    fields = {*(operand.name for operand in function.operands), *function.defaults, "operands", "unknown"}
    for _ in range(150):
        case = chance.choice(CASES[name])
        *shapes, parameters = case if isinstance(case[-1], dict) else (*case, {})
        types = [chance.choice(SOME)] * len(shapes)
        match chance.choice(("type", "shape", "count", "value", "name")):
            case "type":
                types[chance.randrange(len(types))] = chance.choice(SOME)
            case "shape":
                shapes[chance.randrange(len(shapes))] = chance.choice([*SHAPES, None])
            case "count":
                shapes, types = [*shapes, chance.choice(SHAPES)], [*types, types[0]]
            case "value" if function.parameters:
                parameters = {**parameters, chance.choice(list(function.defaults)): chance.choice(WRONG)}
            case "name":
                parameters = {**parameters, "unknown": 1}
        operands = [None if s is None else ArrayType(s, NAMED[t]) for s, t in zip(shapes, types, strict=True)]
        if (field := refused_field(function, operands, parameters)) is not None:
            refused += 1
            assert field.partition("[")[0] in fields, (field, operands, parameters)
    assert 0 < refused < 150


def refused_field(function, operands, parameters):
    """Returns the argument at fault; None for a call that is accepted."""
    try:
        function.results(operands, parameters)
    except CallError as error:
        return error.field
    return None


NEGATIVE = Graph((Node("negative", (Value(-1, 0),)),), (Value(0, 0),))
MESH = {"x": 2}


def types(pattern, dtype):
    shapes = {"array": (4, 4), "scalar": ()}
    return tuple(None if item is None else ArrayType(shapes[item], np.dtype(dtype)) for item in pattern)


def needed(kernel):
    required = [info.name for info in kernel.parameters if info.default is REQUIRED]
    _, parameters = example_call(kernel.name) if kernel.name in FUNCTIONS else ((), {"graph": NEGATIVE})
    return {name: parameters[name] for name in required}


def request(kernel, operands):
    return Request(needed(kernel), operands, MeshAxes(tuple(MESH.items())), (), (), (), "auto")


@pytest.mark.parametrize("name", ["gradient", "laplacian"])
def test_none_of_a_repeated_operand_is_left_out_before_another(name):
    kernel, dtype = KERNELS[name], "float64"
    with pytest.raises(CallError, match=r"'spacing\[0\]', which is None or was left out") as refused:
        resolve(kernel, request(kernel, types(("array", None, "scalar"), dtype)), range(8))
    assert (refused.value.reason, refused.value.field) == (Reason.OPERAND_COUNT, "spacing[0]")
    at_the_end = resolve(kernel, request(kernel, types(("array", None, None), dtype)), range(8))
    assert at_the_end.problem.operands == types(("array",), dtype)

"""The table of functions: the signatures of the kernels, and arguments that are accepted or refused."""

import itertools
import math
import random
from contextlib import suppress

import pytest
from function_examples import example_call
from kernels.conftest import KERNELS
from kernels.table_cases import MOVES, OTHERS

from shardcall_core.call_error import CallError
from shardcall_core.element_types import NAMED
from shardcall_core.functions.elementwise import BINARY, UNARY
from shardcall_core.functions.reductions import REDUCTIONS, WITH_INITIAL, WITH_WHERE
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import ArrayType

SOME = ("bool", "int4", "uint8", "int32", "uint64", "float16", "bfloat16", "float64", "complex64")
PAIRS = [(name, name) for name in NAMED] + list(itertools.permutations(SOME, 2))
CUBE = (2, 3, 5)
PAIR_SHAPES = [(CUBE, CUBE), (CUBE, (5,)), ((), CUBE), ((3, 1), (1, 4)), ((0, 1), (1, 2)), ((2,), (3,))]
REDUCED = [{}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)}, {"axis": (0, -1), "keepdims": True}]

CASES = {
    "where": [(CUBE, (5,), ()), ((), (3, 1), (4,)), ((2,), (2,), (3,))],
    "clip": [(CUBE, None, None), (CUBE, (), None), ((5,), None, CUBE), ((2,), (3,), ())],
    "diff": [
        (CUBE, None, None, {}),
        (CUBE, None, (), {"n": 2, "axis": 0}),
        (CUBE, (2, 4, 5), (), {"n": 3, "axis": 1}),
        (CUBE, (), (), {"n": 0}),
        ((3,), None, None, {"n": 9}),
    ],
    "shift": [(CUBE, None, {"shift": 1}), (CUBE, (), {"shift": (1, -2), "axis": (0, -1)})],
    "roll": [(CUBE, {"shift": 4}), ((), {"shift": 1}), (CUBE, {"shift": (1, 2), "axis": (0, 0)})],
    "gradient": [
        (CUBE, {"axis": (0, 2)}),
        ((3, 5), (), {}),
        ((3, 5), (3,), (), {"edge_order": 2}),
        (CUBE, {"axis": -1}),
    ],
    "laplacian": [(CUBE, {}), ((3, 5), (), {}), (CUBE, (), (), {"axes": (0, -1), "boundary": "zero"})],
    "cumsum": [(CUBE, {}), (CUBE, {"axis": -2}), ((), {}), ((), {"axis": 0}), (CUBE, {"dtype": "complex128"})],
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
        ((2, 3), (2, 3), {}),
    ],
    "einsum": [
        (*shapes, {"subscripts": subscripts})
        for subscripts, *shapes in (
            ("ij,jk->ik", (2, 3), (3, 4)),
            ("ij,jk", (2, 3), (1, 4)),
            ("b a", (2, 3)),
            ("...ii->...i", (6, 3, 3)),
            ("i...,...i", (2, 7, 1), (5, 2)),
            ("...,i...->...i", (1, 5), (2, 4, 5)),
            ("ij,jk,kl->li", (2, 3), (3, 4), (4, 6)),
            ("ij->", (2, 3)),
        )
    ],
    "uniform": [((), (), (), {"shape": (2, 3)}), ((), None, None, {"shape": 5, "dtype": "float16"})],
    "normal": [((), (), (), {"shape": ()}), ((), None, None, {"shape": (2, 0), "dtype": "complex64"})],
    "randint": [((), (), (), {"shape": (2, 3)}), ((), (), (), {"shape": 4, "dtype": "uint8"})],
    "permutation": [((), CUBE, {}), ((), CUBE, {"axis": -1})],
    "transpose": [(CUBE, {}), (CUBE, {"axes": (2, 0, -2)}), ((), {})],
    **{name: [(*shapes, parameters) for shapes, parameters in calls] for name, calls in {**MOVES, **OTHERS}.items()},
    "astype": [(CUBE, {"dtype": "int8"}), ((), {"dtype": "complex64"})],
    "getitem": [(CUBE, (3,), {"sizes": (2, 1, 2), "steps": (-1, 1, 2), "dropped": 1, "inserted": (0, -1)})],
    "setitem": [
        (CUBE, shape, (3,), {"sizes": (2, 1, 2), "steps": (-1, 1, 2), "dropped": 1, "inserted": (0, -1)})
        for shape in ((), (2, 2, 1), (1, 1, 2, 1))
    ],
    "take_at": [(CUBE, (2, 1), (7,), {"axes": (0, 2), "position": 1}), (CUBE, (), {"axes": (1,)})],
    "put_at": [(CUBE, (3, 7), (2, 1), (7,), {"axes": (0, 2)}), (CUBE, (), (4,), {"axes": (1,), "mode": "max"})],
    "put_along_axis": [
        (CUBE, (2, 3, 7), (2, 3, 7), {}),
        (CUBE, (), (1, 4, 5), {"axis": 1}),
        (CUBE, (5,), (1, 3, 5), {"axis": -2}),
    ],
    "lexsort": [(CUBE, {}), (CUBE, {"axis": 0}), ((1, 0), {})],
    "flatnonzero": [(CUBE, {"size": 4}), ((), {"size": 1})],
    **{key: [(CUBE, {}), (CUBE, {"axis": 0}), ((), {"axis": None}), ((0,), {})] for key in ("sort", "argsort")},
    "take": [(CUBE, (2, 3), {"axis": 1}), (CUBE, (), {}), ((0, 3), (0,), {"axis": 0})],
    "take_along_axis": [(CUBE, (2, 3, 7), {}), (CUBE, (1, 2, 5), {"axis": 1})],
    "full": [((), {"shape": CUBE}), ((), {"shape": 4})],
    "full_like": [(CUBE, (), {}), ((), (), {})],
    "nextafter": PAIR_SHAPES,
    "complex": PAIR_SHAPES,
    "arange": [((), (), {"size": 9}), ((), (), {"size": 0})],
    "linspace": [((), (), None, {"size": 9}), ((), (), (), {"size": 1})],
    "eye": [((), {"shape": (3, 5)}), ((), {"shape": (0, 2), "dtype": "int8"})],
    "cumprod": [(CUBE, {}), (CUBE, {"axis": -2}), ((), {}), ((), {"axis": 0}), (CUBE, {"dtype": "complex128"})],
    "searchsorted": [((5,), CUBE, {}), ((5,), (), {"side": "right"}), ((0,), (3,), {})],
    "bincount": [((5,), None, {"length": 7}), ((5,), (5,), {"length": 0})],
    "interp": [(CUBE, (5,), (5,), None, None, {}), ((), (3,), (3,), (), (), {})],
    **{
        name: [(CUBE, {}), (CUBE, {"n": 7, "axis": 0, "norm": "ortho"}), ((5,), {"n": 2})]
        for name in ("fft", "ifft", "rfft", "irfft")
    },
    "cholesky": [((2, 3, 3), {}), ((0, 0), {"upper": True})],
    **{name: [((2, 3, 3), {}), ((4, 4), {})] for name in ("inv", "det", "slogdet")},
    "solve": [((2, 3, 3), (3,), {}), ((2, 3, 3), (7, 1, 3, 2), {}), ((4, 4), (4, 0), {})],
    **{name: [((2, 3, 3), {}), ((4, 4), {"UPLO": "U"})] for name in ("eigh", "eigvalsh")},
    "solve_triangular": [
        ((2, 3, 3), (3,), {}),
        ((2, 3, 3), (7, 1, 3, 2), {"lower": True, "trans": "C"}),
        ((4, 4), (4, 0), {"unit_diagonal": True}),
    ],
    **{name: [((2, 3, 3), {}), ((4, 4), {})] for name in ("eig", "eigvals")},
    "ldexp": PAIR_SHAPES,
    **{name: [(CUBE, {}), ((), {})] for name in ("frexp", "erf", "gammaln")},
    "svd": [((2, 3, 5), {}), ((4, 3), {"full_matrices": False})],
    "svdvals": [((2, 3, 5), {}), ((4, 3), {})],
    "qr": [((2, 3, 5), {}), ((4, 3), {"mode": "complete"})],
    **dict.fromkeys(UNARY, ((CUBE,), ((),))),
    **dict.fromkeys(BINARY, PAIR_SHAPES),
    **{
        name: [(CUBE, values) for values in REDUCED if name in WITH_WHERE or not isinstance(values.get("axis"), tuple)]
        for name in REDUCTIONS
    },
}
for name in WITH_WHERE:
    CASES[name] = [*CASES[name], ((), {}), ((0, 2), {"axis": 0}), (CUBE, (5,), *[()] * (name in WITH_INITIAL), {})]
for name in ("sum", "prod", "mean"):
    CASES[name] = [*CASES[name], *((CUBE, {"dtype": dtype}) for dtype in ("float32", "int64", "complex64"))]


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

"""Rows about the kernels' own rules: parameters of every kernel that has any, and operands that do not fit."""

from __future__ import annotations

from end_to_end.messages import tensor
from faults.bad_input_rows import BIG, BOOL, C64, F32, FP8, I32, MIN, OTHER_FP8, X8, call, planned

from shardcall.v1.program_pb2 import Program, ProgramGraph, ProgramNode, ProgramValue

_X, _SCALAR, _SEED = [tensor(8, 4)], [tensor()], [tensor(element_type=I32)]
_TWO = [tensor(8, 8), tensor(8, 8)]
_LEFT_OUT = tensor(element_type=0)
_WRONG_AXES = [("an axis too far", 2), ("an axis too far back", -3), ("the largest axis", BIG), ("the least axis", MIN)]
_WRONG_TYPES = [("a string", "0"), ("a fraction", 0.5), ("a truth", True)]
_ONE_AXIS = {"diff": {}, "cumsum": {}, "shift": {"shift": 1}, "sum": {}, "std": {}, "gradient": {}}
_INPUT = ProgramValue(input=0)
_LARGE = Program(graphs=[ProgramGraph(nodes=[ProgramNode(kernel="x" * (1 << 20))], results=[_INPUT])])
_PARAMETERS = [
    ("no graphs in a program", "graph", {"graph": Program()}, _X, "INVALID_PARAMETER", "graph.graphs"),
    (
        "a program without results",
        "graph",
        {"graph": Program(graphs=[{}])},
        _X,
        "INVALID_PARAMETER",
        "graph.graphs[0].results",
    ),
    ("a program of a mebibyte", "graph", {"graph": _LARGE}, _X, "MALFORMED_REQUEST", "parameters"),
    ("a string for a program", "graph", {"graph": "{}"}, _X, "PARAMETER_TYPE", "graph"),
    ("a program for an axis", "diff", {"axis": Program(graphs=[{"results": [_INPUT]}])}, _X, "PARAMETER_TYPE", "axis"),
    ("an empty program for an axis", "diff", {"axis": Program()}, _X, "INVALID_PARAMETER", "axis.graphs"),
    ("n of None", "diff", {"n": None}, _X, "PARAMETER_TYPE", "n"),
    ("n of two", "diff", {"n": (1, 2)}, _X, "PARAMETER_TYPE", "n"),
    ("n of -1", "diff", {"n": -1}, _X, "INVALID_PARAMETER", "n"),
    ("the least n", "diff", {"n": MIN}, _X, "INVALID_PARAMETER", "n"),
    ("n of a truth", "diff", {"n": True}, _X, "PARAMETER_TYPE", "n"),
    ("n of 1025 with rows left", "diff", {"n": 1025}, [tensor(2000)], "INVALID_PARAMETER", "n"),
    ("n of NaN", "diff", {"n": float("nan")}, _X, "PARAMETER_TYPE", "n"),
    ("an infinite axis", "diff", {"axis": float("inf")}, _X, "PARAMETER_TYPE", "axis"),
    ("an odd dtype", "cumsum", {"dtype": "float65"}, _X, "UNSUPPORTED_ELEMENT_TYPE", "dtype"),
    ("a dtype of objects", "cumsum", {"dtype": "object"}, _X, "UNSUPPORTED_ELEMENT_TYPE", "dtype"),
    ("a number for a dtype", "cumsum", {"dtype": 14}, _X, "PARAMETER_TYPE", "dtype"),
    ("an odd mode", "convolve", {"mode": "most"}, [tensor(8, 4), tensor(3)], "INVALID_PARAMETER", "mode"),
    ("a fraction for a mode", "convolve", {"mode": 1.0}, [tensor(8, 4), tensor(3)], "PARAMETER_TYPE", "mode"),
    ("an odd number for a mode", "convolve", {"mode": 3}, [tensor(8, 4), tensor(3)], "INVALID_PARAMETER", "mode"),
    ("an odd boundary", "laplacian", {"boundary": "open"}, _X, "INVALID_PARAMETER", "boundary"),
    ("axes twice", "laplacian", {"axes": (0, 0)}, _X, "INVALID_PARAMETER", "axes"),
    ("no axes", "laplacian", {"axes": ()}, _X, "INVALID_PARAMETER", "axes"),
    ("axes too far", "laplacian", {"axes": (0, 2)}, _X, "AXIS_OUT_OF_RANGE", "axes"),
    ("an odd edge order", "gradient", {"edge_order": 3}, _X, "INVALID_PARAMETER", "edge_order"),
    ("edge order 0", "gradient", {"edge_order": 0}, _X, "INVALID_PARAMETER", "edge_order"),
    ("no shift", "shift", {}, _X, "INVALID_PARAMETER", "shift"),
    ("a shift of None", "shift", {"shift": None}, _X, "INVALID_PARAMETER", "shift"),
    ("a fractional shift", "shift", {"shift": 1.5}, _X, "PARAMETER_TYPE", "shift"),
    ("an odd mode of shift", "shift", {"shift": 1, "mode": "wrap"}, _X, "INVALID_PARAMETER", "mode"),
    ("a transposition as text", "matmul", {"transpose_lhs": "yes"}, _TWO, "PARAMETER_TYPE", "transpose_lhs"),
    ("a transposition in numbers", "matmul", {"transpose_rhs": 1}, _TWO, "PARAMETER_TYPE", "transpose_rhs"),
    ("no such type", "matmul", {"preferred_element_type": "f"}, _TWO, "INVALID_PARAMETER", "preferred_element_type"),
    ("no subscripts", "einsum", {}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("a number for subscripts", "einsum", {"subscripts": 3}, _TWO, "PARAMETER_TYPE", "subscripts"),
    ("three terms", "einsum", {"subscripts": "ij,jk,kl->il"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("a term too few", "einsum", {"subscripts": "ij->i"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("a label of no operand", "einsum", {"subscripts": "ij,jk->iz"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("a label twice in the result", "einsum", {"subscripts": "ij,jk->ii"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("a label too many", "einsum", {"subscripts": "ijk,jk->i"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("two arrows", "einsum", {"subscripts": "ij,jk->->ik"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("an arrow's half", "einsum", {"subscripts": "ij,jk-ik"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("two dots", "einsum", {"subscripts": "i..,jk->ik"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("labels that are not ASCII", "einsum", {"subscripts": "éj,jk->ék"}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("4,096 labels", "einsum", {"subscripts": "i" * 4096}, _X, "INVALID_PARAMETER", "subscripts"),
    (
        "sizes that do not match",
        "einsum",
        {"subscripts": "ij,jk"},
        [tensor(8, 4), tensor(8, 4)],
        "INVALID_OPERAND",
        "rhs",
    ),
    ("no shape", "uniform", {}, _SEED, "INVALID_PARAMETER", "shape"),
    ("a negative shape", "uniform", {"shape": (4, -1)}, _SEED, "INVALID_PARAMETER", "shape"),
    ("a shape of 33", "uniform", {"shape": (1,) * 33}, _SEED, "INVALID_PARAMETER", "shape"),
    ("a shape whose size overflows", "uniform", {"shape": (0, *(BIG,) * 31)}, _SEED, "INVALID_SHAPE", "operands"),
    ("a shape as text", "normal", {"shape": "4,4"}, _SEED, "PARAMETER_TYPE", "shape"),
    ("a shape of None", "normal", {"shape": None}, _SEED, "INVALID_PARAMETER", "shape"),
    ("integers of normals", "normal", {"shape": 4, "dtype": "int32"}, _SEED, "UNSUPPORTED_ELEMENT_TYPE", "dtype"),
    ("floats of integers", "randint", {"shape": 4, "dtype": "float32"}, _SEED * 3, "UNSUPPORTED_ELEMENT_TYPE", "dtype"),
    ("an array for a seed", "uniform", {"shape": 4}, _X, "INVALID_OPERAND", "seed"),
    ("a fraction for a seed", "uniform", {"shape": 4}, _SCALAR, "INVALID_OPERAND", "seed"),
    ("a complex bound", "uniform", {"shape": 4}, [*_SEED, tensor(element_type=C64)], "INVALID_OPERAND", "low"),
    ("two axes of a median", "max", {"axis": (0, 0)}, _X, "INVALID_PARAMETER", "axis"),
    ("keepdims of a fraction", "sum", {"keepdims": 1.0}, _X, "PARAMETER_TYPE", "keepdims"),
    ("keepdims as text", "mean", {"keepdims": "True"}, _X, "PARAMETER_TYPE", "keepdims"),
    ("an infinite ddof", "var", {"ddof": float("inf")}, _X, "INVALID_PARAMETER", "ddof"),
    ("ddof of None", "std", {"ddof": None}, _X, "PARAMETER_TYPE", "ddof"),
    ("the least of nothing", "min", {}, [tensor(0)], "INVALID_OPERAND", "x"),
    ("axes too few", "transpose", {"axes": (0,)}, _X, "INVALID_PARAMETER", "axes"),
    ("axes that repeat", "transpose", {"axes": (1, 1)}, _X, "INVALID_PARAMETER", "axes"),
    ("axes as text", "transpose", {"axes": "10"}, _X, "PARAMETER_TYPE", "axes"),
    ("an axis of no permutation", "permutation", {"axis": 5}, [*_SEED, *_X], "AXIS_OUT_OF_RANGE", "axis"),
    ("a collective axis of number 0", "collective_matmul", {"axis_name": 0}, _TWO, "PARAMETER_TYPE", "axis_name"),
    ("a collective axis of no name", "collective_matmul", {"axis_name": ""}, _TWO, "INVALID_PARAMETER", "axis_name"),
]
_OF_ONE = ["sin", "copy", "reshard", "cumsum"]
_OPERANDS = [
    ("no operand at all", "diff", {}, [], "OPERAND_COUNT", "x"),
    ("an operand left out", "diff", {}, [_LEFT_OUT, tensor()], "OPERAND_COUNT", "x"),
    ("four operands", "diff", {}, [tensor(8)] * 4, "OPERAND_COUNT", "operands"),
    ("65 operands", "diff", {}, [tensor(8)] * 65, "MALFORMED_REQUEST", "operands"),
    ("two of one", "sin", {}, [tensor(8)] * 2, "OPERAND_COUNT", "operands"),
    ("one of two", "add", {}, [tensor(8)], "OPERAND_COUNT", "y"),
    ("shapes that do not broadcast", "add", {}, [tensor(8), tensor(7)], "INVALID_OPERAND", "y"),
    ("a difference of a scalar", "diff", {}, _SCALAR, "INVALID_OPERAND", "x"),
    ("a scan of a scalar's axis", "cumsum", {"axis": 1}, _SCALAR, "AXIS_OUT_OF_RANGE", "axis"),
    ("a shift of a scalar", "shift", {"shift": 1}, _SCALAR, "INVALID_OPERAND", "x"),
    ("a gradient of a scalar", "gradient", {}, _SCALAR, "INVALID_OPERAND", "x"),
    ("a gradient of one row", "gradient", {}, [tensor(1, 8)], "INVALID_OPERAND", "x"),
    ("a window of a matrix", "convolve", {}, [tensor(8), tensor(3, 3)], "INVALID_OPERAND", "v"),
    ("a window of nothing", "convolve", {}, [tensor(8), tensor(0)], "INVALID_SHAPE", "v"),
    ("a product with a scalar", "matmul", {}, [tensor(8, 8), tensor()], "INVALID_OPERAND", "rhs"),
    ("a product of sizes that do not match", "matmul", {}, [tensor(8, 4), tensor(8, 4)], "INVALID_OPERAND", "rhs"),
    ("batches that do not broadcast", "matmul", {}, [tensor(3, 2, 2), tensor(2, 2, 2)], "INVALID_OPERAND", "rhs"),
    (
        "two float8 types",
        "matmul",
        {},
        [tensor(4, 4, element_type=FP8), tensor(4, 4, element_type=OTHER_FP8)],
        "UNSUPPORTED_ELEMENT_TYPE",
        "rhs",
    ),
    ("a complex order", "floor_divide", {}, [tensor(8, element_type=C64)] * 2, "UNSUPPORTED_ELEMENT_TYPE", "x"),
    ("a shift by fractions", "left_shift", {}, [tensor(8), tensor(8)], "UNSUPPORTED_ELEMENT_TYPE", "x"),
    ("an inverse of fractions", "invert", {}, _X, "UNSUPPORTED_ELEMENT_TYPE", "x"),
    ("a laplacian of truths", "laplacian", {}, [tensor(8, element_type=BOOL)], "UNSUPPORTED_ELEMENT_TYPE", "x"),
    ("two spacings of three axes", "gradient", {}, [tensor(4, 4, 4), tensor(), tensor()], "OPERAND_COUNT", "spacing"),
    *(
        (f"{kernel}: one spacing of two", kernel, {}, [*_X, _LEFT_OUT, tensor()], "OPERAND_COUNT", "spacing[0]")
        for kernel in ("gradient", "laplacian")
    ),
    ("coordinates too few", "gradient", {}, [tensor(8), tensor(7)], "INVALID_OPERAND", "spacing[0]"),
    ("a fill of many", "shift", {"shift": 1}, [tensor(8), tensor(2)], "INVALID_OPERAND", "fill"),
    ("a prepended matrix", "diff", {}, [tensor(8), tensor(2, 2)], "INVALID_OPERAND", "prepend"),
    ("an appended row too long", "diff", {"axis": 0}, [*_X, tensor(), tensor(1, 5)], "INVALID_OPERAND", "append"),
]
_SIZES = [
    ("operands of a PiB", "diff", {}, [tensor(2**47)]),
    ("two operands of 512 TiB", "add", {}, [tensor(2**46), tensor(2**46)]),
    ("an outer product", "matmul", {}, [tensor(2**24, 1), tensor(1, 2**24)]),
    ("an einsum of all with all", "einsum", {"subscripts": "i,j->ij"}, [tensor(2**28), tensor(2**28)]),
    ("a random PiB", "uniform", {"shape": (2**24, 2**23)}, _SEED),
    ("a full convolution", "convolve", {"mode": "full"}, [tensor(2**36, element_type=F32), tensor(2)]),
    ("a broadcast", "add", {}, [tensor(2**24, 1), tensor(1, 2**24)]),
]
_NAMES = ["dif", "DIFF", "", " diff", "diff\0", "../diff", "__class__", "d" * 100_000, "💥"]

ROWS = [
    *(planned(n, reason, field, call(k, p, mesh=X8), types) for n, k, p, types, reason, field in _PARAMETERS),
    *(
        planned(f"{kernel}: {name}", "AXIS_OUT_OF_RANGE", "axis", call(kernel, {**needed, "axis": axis}), _X)
        for kernel, needed in _ONE_AXIS.items()
        for name, axis in _WRONG_AXES
    ),
    *(
        planned(f"{kernel}: axis of {name}", "PARAMETER_TYPE", "axis", call(kernel, {**needed, "axis": axis}), _X)
        for kernel, needed in _ONE_AXIS.items()
        for name, axis in _WRONG_TYPES
    ),
    *(
        planned(f"{kernel}: no such parameter", "UNKNOWN_PARAMETER", "axle", call(kernel, {"axle": 0}), _X)
        for kernel in _OF_ONE
    ),
    *(planned(n, reason, field, call(k, p), types) for n, k, p, types, reason, field in _OPERANDS),
    *(planned(n, "CALL_TOO_LARGE", "", call(k, p), types) for n, k, p, types in _SIZES),
    *(planned(f"kernel {i}", "KERNEL_NOT_FOUND", "", call(name)) for i, name in enumerate(_NAMES)),
    planned("65 parameters", "MALFORMED_REQUEST", "parameters", call(parameters={f"p{i}": 1 for i in range(65)})),
    planned("65 integers", "MALFORMED_REQUEST", "parameters", call(parameters={"axis": (1,) * 65})),
    planned("4,097 characters", "MALFORMED_REQUEST", "parameters", call("einsum", {"subscripts": "i" * 4097})),
    planned("a parameter of no name", "UNKNOWN_PARAMETER", "parameters", call(parameters={"": 1})),
]

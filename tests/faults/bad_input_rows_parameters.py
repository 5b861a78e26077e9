"""Rows about the kernels' own rules: parameters and operands; kernels/test_refusals.py has more of every kernel."""

from end_to_end.messages import tensor
from faults.bad_input_rows import BIG, C64, F32, I32, MIN, X8, call, planned, shown

from shardcall.v1.program_pb2 import Program, ProgramGraph, ProgramNode, ProgramValue

_X, _SCALAR, _SEED = [tensor(8, 4)], [tensor()], [tensor(element_type=I32)]
_TWO = [tensor(8, 8), tensor(8, 8)]
_LEFT_OUT = tensor(element_type=0)
_NAN, _INFINITY = float("nan"), float("inf")
_INPUT = ProgramValue(input=0)
_LARGE = Program(graphs=[ProgramGraph(nodes=[ProgramNode(kernel="x" * (1 << 20))], results=[_INPUT])])
_NEEDED = {"shift": {"shift": 1}, "normal": {"shape": 4}, "randint": {"shape": 4}}
"""The parameters without which a kernel refuses a call, whatever else is wrong."""
_WRONG_VALUES = [  # kernel, its operands, the parameter, the reason, and values that are refused for it
    ("diff", _X, "n", "PARAMETER_TYPE", None, (1, 2), True, _NAN),
    ("diff", _X, "n", "INVALID_PARAMETER", -1, MIN),
    ("diff", [tensor(2000)], "n", "INVALID_PARAMETER", 1025),
    ("diff", _X, "axis", "PARAMETER_TYPE", _INFINITY),
    ("cumsum", _X, "dtype", "UNSUPPORTED_ELEMENT_TYPE", "float65", "object"),
    ("cumsum", _X, "dtype", "PARAMETER_TYPE", 14),
    ("shift", _X, "shift", "INVALID_PARAMETER", None),
    ("einsum", _TWO, "subscripts", "PARAMETER_TYPE", 3),
    ("einsum", _TWO, "subscripts", "INVALID_PARAMETER", "ij,jk,kl->il", "ij->i", "ij,jk->iz", "ij,jk->ii", "ijk,jk->i"),
    ("einsum", _TWO, "subscripts", "INVALID_PARAMETER", "ij,jk->->ik", "ij,jk-ik", "i..,jk->ik", "éj,jk->ék"),
    ("einsum", _X, "subscripts", "INVALID_PARAMETER", "i" * 4096),
    ("uniform", _SEED, "shape", "INVALID_PARAMETER", (4, -1), (1,) * 33),
    ("normal", _SEED, "shape", "PARAMETER_TYPE", "4,4"),
    ("normal", _SEED, "shape", "INVALID_PARAMETER", None),
    ("normal", _SEED, "dtype", "UNSUPPORTED_ELEMENT_TYPE", "int32"),
    ("randint", _SEED * 3, "dtype", "UNSUPPORTED_ELEMENT_TYPE", "float32"),
    ("var", _X, "ddof", "INVALID_PARAMETER", _INFINITY),
    ("std", _X, "ddof", "PARAMETER_TYPE", None),
    ("permutation", [*_SEED, *_X], "axis", "AXIS_OUT_OF_RANGE", 5),
    ("collective_matmul", _TWO, "axis_name", "INVALID_PARAMETER", ""),
    *(
        (kernel, _X, "axis", *refused)
        for kernel in ("diff", "cumsum", "shift", "sum", "std", "gradient")
        for refused in (("AXIS_OUT_OF_RANGE", 2, -3, BIG, MIN), ("PARAMETER_TYPE", "0", 0.5, True))
    ),
]
_PROGRAMS = [
    ("no graphs in a program", "graph", {"graph": Program()}, "INVALID_PARAMETER", "graph.graphs"),
    ("no results", "graph", {"graph": Program(graphs=[{}])}, "INVALID_PARAMETER", "graph.graphs[0].results"),
    ("a program of a mebibyte", "graph", {"graph": _LARGE}, "MALFORMED_REQUEST", "parameters"),
    ("a string for a program", "graph", {"graph": "{}"}, "PARAMETER_TYPE", "graph"),
    ("a program for an axis", "diff", {"axis": Program(graphs=[{"results": [_INPUT]}])}, "PARAMETER_TYPE", "axis"),
    ("an empty program for an axis", "diff", {"axis": Program()}, "INVALID_PARAMETER", "axis.graphs"),
]
_OPERANDS = [
    ("no operand at all", "diff", {}, [], "OPERAND_COUNT", "x"),
    ("an operand left out", "diff", {}, [_LEFT_OUT, tensor()], "OPERAND_COUNT", "x"),
    ("four operands", "diff", {}, [tensor(8)] * 4, "OPERAND_COUNT", "operands"),
    ("65 operands", "diff", {}, [tensor(8)] * 65, "MALFORMED_REQUEST", "operands"),
    ("two of one", "sin", {}, [tensor(8)] * 2, "OPERAND_COUNT", "operands"),
    ("one of two", "add", {}, [tensor(8)], "OPERAND_COUNT", "y"),
    ("an einsum of sizes that do not match", "einsum", {"subscripts": "ij,jk"}, _X * 2, "INVALID_OPERAND", "rhs"),
    ("no subscripts", "einsum", {}, _TWO, "INVALID_PARAMETER", "subscripts"),
    ("no shift", "shift", {}, _X, "INVALID_PARAMETER", "shift"),
    ("no shape", "uniform", {}, _SEED, "INVALID_PARAMETER", "shape"),
    ("a shape whose size overflows", "uniform", {"shape": (0, *(BIG,) * 31)}, _SEED, "INVALID_SHAPE", "operands"),
    ("an array for a seed", "uniform", {"shape": 4}, _X, "INVALID_OPERAND", "seed"),
    ("a fraction for a seed", "uniform", {"shape": 4}, _SCALAR, "INVALID_OPERAND", "seed"),
    ("a complex bound", "uniform", {"shape": 4}, [*_SEED, tensor(element_type=C64)], "INVALID_OPERAND", "low"),
    ("the least of nothing", "min", {}, [tensor(0)], "INVALID_OPERAND", "x"),
    ("a complex order", "floor_divide", {}, [tensor(8, element_type=C64)] * 2, "UNSUPPORTED_ELEMENT_TYPE", "x"),
    ("a shift by fractions", "left_shift", {}, [tensor(8), tensor(8)], "UNSUPPORTED_ELEMENT_TYPE", "x"),
    ("one spacing of two", "gradient", {}, [*_X, _LEFT_OUT, tensor()], "OPERAND_COUNT", "spacing[0]"),
]
LARGE = [
    ("operands of a PiB", call(), [tensor(2**47)]),
    ("two operands of 512 TiB", call("add"), [tensor(2**46), tensor(2**46)]),
    ("64 operands of 2^49", call("stack"), [tensor(2**23, 2**23)] * 64),
    ("an outer product", call("matmul"), [tensor(2**24, 1), tensor(1, 2**24)]),
    ("an einsum of all with all", call("einsum", {"subscripts": "i,j->ij"}), [tensor(2**28), tensor(2**28)]),
    ("a random PiB", call("uniform", {"shape": (2**24, 2**23)}), _SEED),
    ("a full convolution", call("convolve", {"mode": "full"}), [tensor(2**36, element_type=F32), tensor(2)]),
    ("a window as long as x", call("convolve", {"mode": "full"}), [tensor(2**36), tensor(2**36)]),
    ("a broadcast", call("add"), [tensor(2**24, 1), tensor(1, 2**24)]),
]
"""Calls that claim more than a server allows, with their operands."""
_KERNELS = ["dif", "DIFF", "", " diff", "diff\0", "../diff", "__class__", "d" * 100_000, "💥"]

ROWS = [
    *(
        planned(f"{kernel}: {name} of {value!r:.40}", reason, name, asked, operands)
        for kernel, operands, name, reason, *values in _WRONG_VALUES
        for value in values
        for asked in [call(kernel, {**_NEEDED.get(kernel, {}), name: value}, mesh=X8)]
    ),
    *(planned(n, reason, field, call(k, p, mesh=X8)) for n, k, p, reason, field in _PROGRAMS),
    *(
        planned(f"{kernel}: no such parameter", "UNKNOWN_PARAMETER", "axle", call(kernel, {"axle": 0}))
        for kernel in ("sin", "copy", "reshard", "cumsum")
    ),
    *(planned(n, reason, field, call(k, p), operands) for n, k, p, operands, reason, field in _OPERANDS),
    *(planned(name, "CALL_TOO_LARGE", "", asked, operands) for name, asked, operands in LARGE),
    *(planned(f"kernel {shown(name)}", "KERNEL_NOT_FOUND", "", call(name)) for name in _KERNELS),
    planned("65 parameters", "MALFORMED_REQUEST", "parameters", call(parameters={f"p{i}": 1 for i in range(65)})),
    planned("65 integers", "MALFORMED_REQUEST", "parameters", call(parameters={"axis": (1,) * 65})),
    planned("4,097 characters", "MALFORMED_REQUEST", "parameters", call("einsum", {"subscripts": "i" * 4097})),
    planned("a parameter of no name", "UNKNOWN_PARAMETER", "parameters", call(parameters={"": 1})),
]

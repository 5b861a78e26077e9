"""Calls that kernels refuse before anything runs: the reason, the argument at fault, and the message."""

import numpy as np
import pytest
from kernels.conftest import KERNELS

from shardcall_core.call_error import Reason
from shardcall_core.element_types import NAMED
from shardcall_core.functions.stencils import MAX_ORDER
from shardcall_core.layouts.layout import ArrayType


def of(dtype, *shape):
    return ArrayType(shape, NAMED[dtype])


def f32(*shape):
    return of("float32", *shape)


def f64(*shape):
    return of("float64", *shape)


MATRIX, SCALAR, SMALL, STARTS = f32(64, 8), f32(), f32(5, 4), of("int64", 2)
TYPE, OPERAND, PARAMETER, AXIS = "UNSUPPORTED_ELEMENT_TYPE", "INVALID_OPERAND", "INVALID_PARAMETER", "AXIS_OUT_OF_RANGE"
OF_PARAMETER, COUNT, STRATEGY = "PARAMETER_TYPE", "OPERAND_COUNT", ("STRATEGY_UNSUPPORTED", "strategy")
BY_ROWS, BY_COLUMNS = {"in_specs": [("x", None)]}, {"out_specs": [(None, "x")]}
HALO = {"strategy": "halo", "axis": 0} | BY_ROWS
SCAN = {"strategy": "block_scan"}
FLOAT8S = [of("float8_e5m2", 8), of("float8_e4m3fn", 8)]
THREE_TYPES = [of("bfloat16", 8), of("int16", 8), of("complex64", 8)]
SLICE = {"sizes": (2, 16), "steps": (1, 1)}
STENCILS = {  # by kernel: operands, parameters and layout, reason, field, parts of the message
    "diff": [
        ([SCALAR], {}, OPERAND, "x", "x is float32[], a scalar"),
        ([MATRIX], {"axis": 2}, AXIS, "axis", "from -2 to 1"),
        ([MATRIX], {"axis": "0"}, OF_PARAMETER, "axis", "axis='0' is of type str"),
        ([MATRIX], {"n": -1}, PARAMETER, "n", "n=-1 is negative"),
        ([MATRIX], {"n": "x" * 5000}, OF_PARAMETER, "n", "(5000 characters)", "of type str; n is an integer"),
        ([MATRIX], {"n": True}, OF_PARAMETER, "n", "n=True is of type bool"),
        ([f32(10**12)], {"n": MAX_ORDER + 1}, PARAMETER, "n", "at most 1024"),
        ([MATRIX, f32(2)], {}, OPERAND, "prepend", "(2,) and x (64, 8)"),
        ([MATRIX, None, f32(3, 2)], {}, OPERAND, "append", "but axis 1"),
        (FLOAT8S, {}, TYPE, "prepend", "prepend float8_e4m3fn and x float8_e5m2 have no common element type; convert"),
        (THREE_TYPES, {}, TYPE, "append", "convert all to one of these types, or to float32"),
        ([], {}, COUNT, "x", "left out"),
        ([MATRIX], {"order": 1}, "UNKNOWN_PARAMETER", "order", "no parameter"),
        ([MATRIX], HALO | {"n": 60}, *STRATEGY, "8 rows and needs 53 of those on one side, and it serves 4"),
        (
            [MATRIX],
            HALO | BY_COLUMNS,
            *STRATEGY,
            "as P('x', None) and the result as P(None, 'x')",
            "these can: gspmd, auto",
        ),
    ],
    "shift": [
        ([MATRIX], {"shift": 1, "axis": (0, -2)}, PARAMETER, "axis", "twice"),
        ([MATRIX], {"shift": 1, "mode": "wrap"}, PARAMETER, "mode", "give 'fill' or 'periodic'"),
        ([MATRIX, f32(2)], {"shift": 1}, OPERAND, "fill", "give a scalar"),
        ([MATRIX, SCALAR], {"shift": 1, "mode": "periodic"}, OPERAND, "fill", "leave out one of them"),
        ([of("uint8", 8), SCALAR], {"shift": 1}, TYPE, "fill", "fill is float32 and x uint8"),
        ([MATRIX], HALO | BY_COLUMNS | {"shift": 1}, *STRATEGY, "these can: gspmd, auto"),
    ],
    "roll": [
        ([MATRIX], {"shift": (1, 2, 3), "axis": (0, 1)}, PARAMETER, "shift", "3 shifts for 2 axes"),
        ([MATRIX], {"shift": 1, "strategy": "halo"}, *STRATEGY, "these can: gspmd"),
    ],
    "laplacian": [
        ([SCALAR], {}, OPERAND, "x", "a scalar"),
        ([of("bool", 8)], {}, TYPE, "x", "bool"),
        ([MATRIX], {"axes": ()}, PARAMETER, "axes", "name one or more"),
        ([MATRIX], {"boundary": "wrap"}, PARAMETER, "boundary", "give 'periodic' or 'zero' or 'edge'"),
        ([MATRIX, SCALAR, SCALAR, SCALAR], {}, COUNT, "spacing", "3 spacings for 2 axes"),
        ([MATRIX, f32(64), SCALAR], {}, OPERAND, "spacing[0]", "give a scalar"),
    ],
    "gradient": [
        ([SCALAR], {}, OPERAND, "x", "a scalar"),
        ([of("bool", 8)], {}, TYPE, "x", "bool"),
        ([MATRIX], {"axis": 2}, AXIS, "axis", "from -2 to 1"),
        ([MATRIX], {"axis": (0, 0)}, PARAMETER, "axis", "twice"),
        ([MATRIX], {"edge_order": 3}, PARAMETER, "edge_order", "give 1 or 2"),
        ([f32(2, 8)], {"edge_order": 2}, OPERAND, "x", "axis 0 of x has 2 elements"),
        ([f32(1, 8)], {}, OPERAND, "x", "edge_order=1 needs 2"),
        ([MATRIX, SCALAR, SCALAR, SCALAR], {}, COUNT, "spacing", "3 spacings for 2 axes"),
        ([MATRIX, f32(8)], {}, COUNT, "spacing", "1 spacing for 2 axes"),
        ([MATRIX, f32(8), SCALAR], {}, OPERAND, "spacing[0]", "the 64 coordinates"),
        ([MATRIX, f32(8, 8), SCALAR], {}, OPERAND, "spacing[0]", "shape (8, 8)"),
    ],
    "cumsum": [
        ([f64(9, 3)], {"axis": 2}, AXIS, "axis", "axis=2", "2 axes", "-2 to 1", "None"),
        ([f64()], {"axis": 1}, AXIS, "axis", "axis=1", "-1 to 0"),
        ([f64(9, 3)], {"dtype": 3}, OF_PARAMETER, "dtype", "dtype=3", "the name of an element type"),
        ([f64(9, 3)], {"dtype": "datetime64"}, TYPE, "dtype", "datetime64", "float64", "int4"),
        ([of("complex64", 3)], {"dtype": "float64"}, TYPE, "dtype", "complex64", "imaginary", "real part"),
        ([f64(9, 3)], SCAN | {"axis": 0} | BY_COLUMNS, *STRATEGY, "P('x', None)", "P(None, 'x')", "gspmd"),
        ([f64(9, 3)], SCAN | {"in_specs": [(None, "x")]}, *STRATEGY, "flattened", "only its first axis"),
        ([f64(9, 3)], SCAN | {"out_specs": [("x",)]}, *STRATEGY, "9 rows", "8 blocks", "left unset"),
        ([f64(9, 3)], SCAN | {"out_specs": [()]}, *STRATEGY, "P('x', None)", "P(None)", "P('x')"),
        ([f64()], SCAN, *STRATEGY, "scalar"),
    ],
    "convolve": [
        ([f64(), f64(3)], {}, OPERAND, "x", "scalar", "one axis or more"),
        ([f64(9), f64(3, 1)], {}, OPERAND, "v", "(3, 1)", "one axis"),
        ([f64(9), f64()], {}, OPERAND, "v", "()", "one axis"),
        ([f64(0), f64(3)], {}, "INVALID_SHAPE", "x", "empty", "at least one"),
        ([f64(9), f64(0)], {}, "INVALID_SHAPE", "v", "empty", "at least one"),
        ([f64(9), f64(3)], {"mode": "sane"}, PARAMETER, "mode", "'sane'", "did you mean 'same'"),
        ([f64(9), f64(3)], {"mode": 1.0}, OF_PARAMETER, "mode", "mode=1", "a string"),
        ([f64(9), f64(3)], {"mode": 3}, PARAMETER, "mode", "mode=3", "0, 1 or 2"),
        (FLOAT8S, {}, TYPE, "v", "float8_e5m2", "float8_e4m3fn", "float32"),
        ([f64(9, 3), f64(3)], HALO | BY_COLUMNS, *STRATEGY, "P('x', None)", "P(None, 'x')", "gspmd"),
    ],
}
MOVES = {
    "reshape": [
        ([SMALL], {"shape": (3, -1)}, PARAMETER, "shape", "x is of shape (5, 4), 20 elements"),
        ([SMALL], {"shape": (-1, -1)}, PARAMETER, "shape", "at most one"),
    ],
    "expand_dims": [([SMALL], {"axis": 3}, AXIS, "axis", "from -3 to 2")],
    "squeeze": [([SMALL], {"axis": 0}, PARAMETER, "axis", "axes of size 1")],
    "broadcast_to": [([SMALL], {"shape": (5, 5)}, PARAMETER, "shape", "does not broadcast")],
    "concatenate": [
        (
            [SMALL, SCALAR],
            {},
            OPERAND,
            "arrays[1]",
            "arrays[1] is of shape () and arrays[0] of (5, 4); only axis 0 may",
        ),
        ([SCALAR], {}, OPERAND, "arrays[0]", "one axis or more"),
    ],
    "stack": [([SMALL, SCALAR], {}, OPERAND, "arrays[1]", "one shape")],
    "astype": [([SMALL], {"dtype": "float3"}, TYPE, "dtype", "float32")],
    "tile": [([SMALL], {"reps": (-1,)}, PARAMETER, "reps", "0 or more")],
    "repeat": [([SMALL], {"repeats": -1}, PARAMETER, "repeats", "0 or more")],
    "tril": [([SCALAR], {}, OPERAND, "x", "one axis or more")],
    "diagonal": [([SMALL], {"axis2": 0}, PARAMETER, "axis2", "give another")],
    "trace": [([SCALAR], {}, OPERAND, "x", "two axes or more")],
    "pad": [
        ([SMALL], {"pad_width": (1, 2, 3)}, PARAMETER, "pad_width", "2 axes"),
        ([SMALL], {"pad_width": -1}, PARAMETER, "pad_width", "0 or more"),
        ([SMALL], {"pad_width": 1, "mode": "mean"}, PARAMETER, "mode", "'reflect'"),
        ([SMALL, SCALAR], {"pad_width": 1, "mode": "edge"}, OPERAND, "constant_values", "leave it out"),
        ([SMALL, of("complex64")], {"pad_width": 1}, TYPE, "constant_values", "real"),
    ],
    "getitem": [
        ([SMALL, STARTS], {"sizes": (6, 1), "steps": (1, 1)}, PARAMETER, "sizes", "fewer"),
        ([SMALL, STARTS], {"sizes": (5, 1), "steps": (1, 0)}, PARAMETER, "steps", "other than 0"),
        ([SMALL, SMALL], {"sizes": (5, 1), "steps": (1, 1)}, TYPE, "starts", "integers"),
        ([SMALL, STARTS], {"sizes": (5, 2), "steps": (1, 1), "dropped": 1}, PARAMETER, "dropped", "size 1"),
    ],
    "setitem": [
        ([f32(4096, 16), f32(3, 16), STARTS], SLICE, OPERAND, "values"),
        ([f32(4096, 16), f32(1, 2, 16), STARTS], SLICE, OPERAND, "values"),
        ([f32(4096, 16), of("complex64"), STARTS], SLICE, TYPE, "values"),
    ],
    "take": [
        ([SMALL, of("float16", 5, 4)], {"axis": 0}, TYPE, "indices"),
        ([f32(0, 4), of("int64", 5, 4)], {"axis": 0}, OPERAND, "x"),
    ],
    "take_along_axis": [([SMALL, of("int64", *shape)], {}, OPERAND, "indices") for shape in ((5,), (3, 4))],
    "take_at": [
        ([SMALL, of("float16", 5, 4)], {"axes": (0,)}, TYPE, "indices[0]"),
        ([SMALL, of("int64", 5, 4)], {"axes": (0, 1)}, PARAMETER, "axes"),
        ([SMALL, of("int64", 5, 4)], {"axes": (0,), "position": 2}, PARAMETER, "position"),
        ([f32(0, 4), of("int64", 5, 4)], {"axes": (0,)}, OPERAND, "x"),
    ],
    "put_at": [
        ([SMALL, SMALL, of("int64", 5, 4)], {"axes": (0,)}, OPERAND, "values"),
        ([SMALL, SMALL, of("int64", 5, 4)], {"axes": (0,), "mode": "xor"}, PARAMETER, "mode"),
        ([of("int64", 5, 4), of("complex64"), of("int64", 5, 4)], {"axes": (0,)}, TYPE, "values"),
    ],
    "flatnonzero": [([SMALL], {"size": 21}, PARAMETER, "size")],
    "transpose": [([f32(3, 4)], {"axes": (0,)}, PARAMETER, "axes", "names 1 of 2 axes")],
}
NUMBERS = {
    "cumprod": [([of("complex64", 5)], {"dtype": "float32"}, TYPE, "x")],
    "searchsorted": [
        ([f32(2, 3, 4), of("int64", 5)], {}, OPERAND, "a"),
        ([of("int64", 5), of("int64", 5)], {"side": "both"}, PARAMETER, "side"),
    ],
    "bincount": [
        ([of("float16", 5)], {"length": 3}, TYPE, "x"),
        ([of("int64", 5), f32(2, 3, 4)], {"length": 3}, OPERAND, "weights"),
        ([of("int64", 5), of("complex64", 5)], {"length": 3}, TYPE, "weights"),
        ([of("int64", 5)], {"length": -1}, PARAMETER, "length"),
    ],
    "interp": [
        ([of("complex64", 5), of("int64", 5), of("int64", 5)], {}, TYPE, "x"),
        ([of("int64", 5), f32(2, 3, 4), of("int64", 5)], {}, OPERAND, "xp"),
        ([of("int64", 5), of("int64", 5), f32(2, 3, 4)], {}, OPERAND, "fp"),
        ([of("int64", 5)] * 4, {}, OPERAND, "left"),
    ],
    "fft": [
        ([f32(5, 0)], {}, PARAMETER, "n"),
        *(([of(name, 5)], {}, TYPE, "x") for name, dtype in NAMED.items() if dtype.kind not in "biufc"),
    ],
    "ifft": [([f32(5, 0)], {"axis": 0, "n": 0}, PARAMETER, "n")],
    "irfft": [([f32(1)], {}, PARAMETER, "n"), ([f32(5, 0)], {"axis": 0, "norm": "none"}, PARAMETER, "norm")],
    "rfft": [([of("complex64", 5, 0)], {"axis": 0}, TYPE, "x")],
    "sum": [([f32(3, 4)], {"dtype": "float33"}, TYPE, "dtype", "no element type")],
    "argmax": [([f32(3, 4)], {"axis": (0, 1)}, OF_PARAMETER, "axis", "one axis")],
    "max": [([f32(0, 4)], {"axis": 0}, OPERAND, "x", "sizes are not 0")],
    "mean": [([of("complex64", 3)], {"dtype": "float32"}, TYPE, "dtype", "dtype='complex64'")],
    "add": [([f32(3, 4), f32(3)], {}, OPERAND, "y", "(3,)", "(3, 4)")],
    "subtract": [([of("bool", 3)] * 2, {}, TYPE, "x", "numpy.subtract does not take bool and bool")],
    "invert": [([f32(3, 4)], {}, TYPE, "x", "float32")],
}
STACK, ROWS = f32(5, 4, 4), f32(5, 3, 4)
MATRICES = {
    "inv": [([ROWS], {}, OPERAND, "x")],
    "det": [([f32(4)], {}, OPERAND, "x")],
    "svd": [([of("float16", 4, 4)], {}, TYPE, "x")],
    "eigh": [([STACK], {"UPLO": "X"}, PARAMETER, "UPLO")],
    "qr": [([STACK], {"mode": "raw"}, PARAMETER, "mode")],
    "solve": [([STACK, ROWS], {}, OPERAND, "b"), ([STACK, f32(3, 4, 1)], {}, OPERAND, "b")],
}
XY = {"mesh": {"x": 4, "y": 2}}
PAIR, BFLOAT16 = [f32(2, 2), f32(2, 2)], {"preferred_element_type": "bfloat16"}
SQUARES, BATCHES, TALL = [f32(8, 8), f32(8, 8)], [f32(1, 8, 8), f32(4, 8, 8)], [f32(9, 8), f32(8, 8)]
OF_MATMUL = [  # strategy, operands, their specs, that of the result, and what is said
    ("psum", SQUARES, [("x",), (None, "y")], None, "no axis that is summed over is sharded, and it completes the sums"),
    ("psum", SQUARES, [("x", "y"), ("y", "x")], None, "axis 0 of lhs and axis 1 of rhs are both sharded over 'x', and"),
    (
        "psum",
        SQUARES,
        [(None, "y"), ("y", None)],
        ("y", None),
        "to be P('y', None), and it makes P(None, None) of these",
    ),
    ("psum", SQUARES, [("x", "y"), ()], None, "axis 1 of lhs is sharded over 'y' and axis 0 of rhs over no mesh axis"),
    (
        "psum",
        BATCHES,
        [("x", None, "y"), (None, "y")],
        None,
        "size 1, is broadcast and is sharded over 'x', and it must",
    ),
    ("psum_scatter", TALL, [("x", "y"), ("y", None)], (("x", "y"),), "3 of 9 along axis 0 and 2 blocks of the result"),
    (
        "psum_scatter",
        [f32(8), f32(8)],
        [("y",), ("y",)],
        None,
        "the result is a scalar, and it scatters the sums along",
    ),
    ("all_gather", SQUARES, [("x", None), (None, "y")], None, "every device has what its block of the result needs"),
    (
        "all_gather",
        SQUARES,
        [("x", "y"), ("x", "y")],
        ("x",),
        "sharded as P('x', None) and the operands are over 'y' too",
    ),
    ("summa", SQUARES, [("x",), (None, "y")], None, "the contracting axis is sharded in neither operand"),
    ("summa", SQUARES, [("x", "y"), ("x", "y")], ("y", "x"), "P('y', 'x'), and it makes P('x', 'y') of these operands"),
]
XYZ = {"axis_name": "x", "mesh": {"x": 2, "y": 2, "z": 2}}
OF_COLLECTIVE_MATMUL = [  # strategy, specs of the operands, that of the result, and what is said
    ("auto", [("y", None), ()], None, "axis_name='x' shards neither, so nothing would travel"),
    ("auto", [("y", None), ()], None, "serve lhs P(None, 'x') with rhs P('x', None); change the specs, or call"),
    ("auto", [("x", "y"), ()], None, "the contracting axis must be sharded alike in both, except for 'x'"),
    ("auto", [(None, ("x", "y")), (("y", "x"), None)], None, "the contracting axis must be sharded alike"),
    ("auto", [(("x", "y"), None), ()], None, "'x' must be the last mesh axis of those that shard the axis to be"),
    ("auto", [("y", "x"), ("x", "y")], None, "rows and columns of the result would both be sharded over 'y'"),
    ("ring", [(("y", "x"), None), (None, ("y", "x"))], None, "rows and columns of the result would both be sharded"),
    ("ring", [(None, "x"), ("x", None)], None, "'x' shards the contracting axis of both, and it serves lhs P('x'"),
    ("psum_scatter", [("x", None), ()], None, "'x' shards the contracting axis of at most one, and it serves lhs"),
    ("ring", [("x", None), ()], ("x", None), "rhs P(None, None) and the result P('x', None), and it makes P(None,"),
    ("ring", [("x", None), (None, "x")], (), "and it makes P(None, 'x') or P('x', None) of these operands"),
    ("psum_scatter", [(None, "x"), ("x", None)], (), "it makes P('x', None) or P(None, 'x') of these operands"),
]
PRODUCTS = {
    "matmul": [
        ([f32(), f32(2)], {}, OPERAND, "lhs", "of rank 0; give an array of rank 1 or more"),
        ([f32(2, 3), f32(2, 3)], {}, OPERAND, "rhs", "1 of lhs (3) and axis 0 of rhs (2)"),
        ([f32(3), f32(4, 2, 3)], {}, OPERAND, "rhs", "0 of lhs (3) and axis 1 of rhs (2)"),
        ([f32(2, 3), f32(3, 2)], {"transpose_lhs": True}, OPERAND, "rhs", "axis 0 of lhs (2) and axis 0 of rhs (3)"),
        (
            [f32(2, 2, 3), f32(3, 3, 2)],
            {},
            OPERAND,
            "rhs",
            "matched from the right and must be of one size, or of size",
        ),
        ([f32(3), f32(3, 2)], {"transpose_lhs": True}, PARAMETER, "transpose_lhs", "float32[3], a vector; give an"),
        (PAIR, {"transpose_rhs": 1}, OF_PARAMETER, "transpose_rhs", "transpose_rhs is True or False"),
        (PAIR, BFLOAT16, PARAMETER, "preferred_element_type", "common type of the factors is float32; give one of"),
        (FLOAT8S, {}, TYPE, "rhs", "no common element type"),
        *(
            (operands, {"strategy": name, "in_specs": specs, "out_specs": [out_spec]}, *STRATEGY, says)
            for name, operands, specs, out_spec, says in OF_MATMUL
        ),
    ],
    "collective_matmul": [
        (SQUARES, {}, PARAMETER, "axis_name", "give axis_name="),
        (SQUARES, {"axis_name": "rows"}, PARAMETER, "axis_name", "no axis of the mesh (x=4, y=2); there are: x, y"),
        (SQUARES, {"axis_name": 0}, OF_PARAMETER, "axis_name", "axis_name=0 is of type int; axis_name is a string"),
        ([f32(8), f32(8, 8)], {"axis_name": "x"}, OPERAND, "lhs", "lhs is float32[8], of rank 1; give a matrix"),
        *(
            (SQUARES, XYZ | {"strategy": name, "in_specs": specs, "out_specs": [out_spec]}, *STRATEGY, says)
            for name, specs, out_spec, says in OF_COLLECTIVE_MATMUL
        ),
    ],
}
TABLE = STENCILS | MOVES | NUMBERS | MATRICES | PRODUCTS


@pytest.mark.parametrize("name", TABLE)
def test_refusals_say_what_is_wrong_and_what_to_do(refused, name):
    for operands, how, reason, field, *says in TABLE[name]:
        error = refused(KERNELS[name], *operands, **(XY if name in PRODUCTS else {"mesh": {"x": 8}}) | how)
        assert (error.reason, error.field) == (Reason[reason], field), (operands, how)
        assert [part for part in says if part not in error.message] == [], error.message


@pytest.mark.parametrize("row", STENCILS["gradient"][1:])
def test_numpy_refuses_gradients_too(row):
    operands, how, *_ = row
    arrays = [np.ones(operand.shape, operand.dtype) for operand in operands]
    with pytest.raises((ValueError, TypeError, np.exceptions.AxisError)):
        np.gradient(*arrays, **how)

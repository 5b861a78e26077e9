"""Refusals of `matmul` and `collective_matmul`, and their messages."""

import ml_dtypes
import numpy as np
import pytest

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.products.collective_matmul import CollectiveMatMul
from shardcall_server.kernels.products.matmul import MatMul

MATMUL = MatMul()
COLLECTIVE = CollectiveMatMul()
F32 = np.dtype(np.float32)


def matrix(*shape, dtype=F32):
    return ArrayType(shape, dtype)


@pytest.mark.parametrize(
    ("kernel", "operands", "how", "reason", "field", "says"),
    [
        (
            MATMUL,
            [matrix(), matrix(2)],
            {},
            Reason.INVALID_OPERAND,
            "lhs",
            "of rank 0; give an array of rank 1 or more",
        ),
        (MATMUL, [matrix(2, 3), matrix(2, 3)], {}, Reason.INVALID_OPERAND, "rhs", "1 of lhs (3) and axis 0 of rhs (2)"),
        (MATMUL, [matrix(3), matrix(4, 2, 3)], {}, Reason.INVALID_OPERAND, "rhs", "0 of lhs (3) and axis 1 of rhs (2)"),
        (
            MATMUL,
            [matrix(2, 3), matrix(3, 2)],
            {"transpose_lhs": True},
            Reason.INVALID_OPERAND,
            "rhs",
            "axis 0 of lhs (2) and axis 0 of rhs (3) are summed over",
        ),
        (
            MATMUL,
            [matrix(2, 2, 3), matrix(3, 3, 2)],
            {},
            Reason.INVALID_OPERAND,
            "rhs",
            "all axes but the last two are matched from the right and must be of one size, or of size 1",
        ),
        (
            MATMUL,
            [matrix(3), matrix(3, 2)],
            {"transpose_lhs": True},
            Reason.INVALID_PARAMETER,
            "transpose_lhs",
            "transpose_lhs=True; lhs is float32[3], a vector; give an array of rank 2 or more, or False",
        ),
        (
            MATMUL,
            [matrix(2, 2), matrix(2, 2)],
            {"transpose_rhs": 1},
            Reason.PARAMETER_TYPE,
            "transpose_rhs",
            "transpose_rhs=1 is of type int; transpose_rhs is True or False",
        ),
        (
            MATMUL,
            [matrix(2, 2), matrix(2, 2)],
            {"preferred_element_type": "bfloat16"},
            Reason.INVALID_PARAMETER,
            "preferred_element_type",
            "='bfloat16'; the common type of the factors is float32; give one of: complex128, complex64, float32, "
            "float64",
        ),
        (
            MATMUL,
            [matrix(2, dtype=np.dtype(ml_dtypes.float8_e5m2)), matrix(2, dtype=np.dtype(ml_dtypes.float8_e4m3fn))],
            {},
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            "rhs",
            "no common element type",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "psum", "in_specs": [("x",), (None, "y")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "no axis that is summed over is sharded, and it completes the sums of one that is",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "psum", "in_specs": [("x", "y"), ("y", "x")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "axis 0 of lhs and axis 1 of rhs are both sharded over 'x', and it serves different mesh axes",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "psum", "in_specs": [(None, "y"), ("y", None)], "out_specs": [("y", None)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "is to be P('y', None), and it makes P(None, None) of these operands; these can: gspmd, psum_",
        ),
        (
            MATMUL,
            [matrix(9, 8), matrix(8, 8)],
            {"strategy": "psum_scatter", "in_specs": [("x", "y"), ("y", None)], "out_specs": [(("x", "y"),)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "a block of the product has 3 of 9 along axis 0 and 2 blocks of the result have 4",
        ),
        (
            MATMUL,
            [matrix(8), matrix(8)],
            {"strategy": "psum_scatter", "in_specs": [("y",), ("y",)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "the result is a scalar, and it scatters the sums along an axis",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "psum", "in_specs": [("x", "y"), ()]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "axis 1 of lhs is sharded over 'y' and axis 0 of rhs over no mesh axis, and it serves corresponding axes",
        ),
        (
            MATMUL,
            [matrix(1, 8, 8), matrix(4, 8, 8)],
            {"strategy": "psum", "in_specs": [("x", None, "y"), (None, "y")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "axis 0 of lhs has size 1, is broadcast and is sharded over 'x', and it must not be",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "all_gather", "in_specs": [("x", None), (None, "y")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "every device has what its block of the result needs, and it gathers what a device lacks",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "all_gather", "in_specs": [("x", "y"), ("x", "y")], "out_specs": [("x",)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "the result is sharded as P('x', None) and the operands are over 'y' too",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "summa", "in_specs": [("x",), (None, "y")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "the contracting axis is sharded in neither operand",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "summa", "in_specs": [("x", "y"), ("x", "y")], "out_specs": [("y", "x")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "is to be P('y', 'x'), and it makes P('x', 'y') of these operands; these can: gspmd, all_gather, auto",
        ),
        (COLLECTIVE, [matrix(8, 8), matrix(8, 8)], {}, Reason.INVALID_PARAMETER, "axis_name", "give axis_name="),
        (
            COLLECTIVE,
            [matrix(8, 8), matrix(8, 8)],
            {"axis_name": "rows"},
            Reason.INVALID_PARAMETER,
            "axis_name",
            "'rows' is no axis of the mesh (x=4, y=2); there are: x, y",
        ),
        (
            COLLECTIVE,
            [matrix(8, 8), matrix(8, 8)],
            {"axis_name": 0},
            Reason.PARAMETER_TYPE,
            "axis_name",
            "axis_name=0 is of type int; axis_name is a string",
        ),
        (
            COLLECTIVE,
            [matrix(8), matrix(8, 8)],
            {"axis_name": "x"},
            Reason.INVALID_OPERAND,
            "lhs",
            "lhs is float32[8], of rank 1; give a matrix",
        ),
        (
            COLLECTIVE,
            [matrix(8, 8), matrix(8, 8)],
            {"axis_name": "x", "strategy": "psum_scatter", "in_specs": [("x", None), ()]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "the specs are lhs P('x', None) and rhs P(None, None)",
        ),
    ],
)
def test_what_cannot_be_is_refused(refused, kernel, operands, how, reason, field, says):
    error = refused(kernel, *operands, **{"mesh": {"x": 4, "y": 2}} | how)
    assert (error.reason, error.field) == (reason, field)
    assert says in error.message

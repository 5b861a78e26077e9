"""What `matmul` and `collective_matmul` refuse, and in which words."""

import ml_dtypes
import numpy as np
import pytest

from shardcall_server.errors import Reason
from shardcall_server.kernels.collective_matmul import CollectiveMatMul
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.kernels.matmul import MatMul

MATMUL = MatMul()
COLLECTIVE = CollectiveMatMul()
F32 = np.dtype(np.float32)


def matrix(*shape, dtype=F32):
    return ArrayType(shape, dtype)


@pytest.mark.parametrize(
    ("kernel", "operands", "how", "reason", "field", "says"),
    [
        (MATMUL, [matrix(), matrix(2)], {}, Reason.INVALID_OPERAND, "lhs", "of rank 0; give an array of rank 1 or 2"),
        (MATMUL, [matrix(2, 2), matrix(1, 2, 2)], {}, Reason.INVALID_OPERAND, "rhs", "float32[1,2,2], of rank 3"),
        (MATMUL, [matrix(2, 3), matrix(2, 3)], {}, Reason.INVALID_OPERAND, "rhs", "lhs (3) and the first of rhs (2)"),
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
            {"strategy": "psum"},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "split over no mesh axis in lhs and over no mesh axis in rhs",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "psum", "in_specs": [("x", "y"), ("y", "x")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "the rows of lhs are split over 'x' and the columns of rhs over 'x'",
        ),
        (
            MATMUL,
            [matrix(8, 8), matrix(8, 8)],
            {"strategy": "psum", "in_specs": [(None, "y"), ("y", None)], "out_specs": [("y", None)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "is to be split as P('y', None), and it makes P(None, None) of these operands; these can: gspmd, psum_",
        ),
        (
            MATMUL,
            [matrix(9, 8), matrix(8, 8)],
            {"strategy": "psum_scatter", "in_specs": [("x", "y"), ("y", None)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "a block of the product has 3 of 9 along axis 0 and 2 blocks of the result have 4",
        ),
        (
            MATMUL,
            [matrix(8), matrix(8, 8)],
            {"strategy": "psum_scatter", "in_specs": [("y",), ("y", None)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "lhs is a vector",
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
            Reason.INVALID_PARAMETER,
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
            {"axis_name": "x", "in_specs": [("x", "y")]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "give lhs P('x', None), rhs P(None, None) and the result P(None, None), or lhs P(None, 'x')",
        ),
        (
            COLLECTIVE,
            [matrix(8, 8), matrix(8, 8)],
            {"axis_name": "x", "strategy": "ring", "out_specs": [("x", None)]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "and the result P('x', None), and it serves lhs P('x', None)",
        ),
        (
            COLLECTIVE,
            [matrix(8, 8), matrix(8, 8)],
            {"axis_name": "x", "strategy": "psum_scatter", "in_specs": [("x", None), ()]},
            Reason.STRATEGY_UNSUPPORTED,
            "strategy",
            "given are lhs P('x', None), rhs P(None, None)",
        ),
    ],
)
def test_what_cannot_be_is_refused(refused, kernel, operands, how, reason, field, says):
    error = refused(kernel, *operands, **{"mesh": {"x": 4, "y": 2}} | how)
    assert (error.reason, error.field) == (reason, field)
    assert says in error.message

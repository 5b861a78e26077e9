"""Every kernel with every pattern of operands present, left out and scalar: a right answer or a refusal that names one.

The parameters are those of its example that a call needs, and no more.
"""

import numpy as np
import pytest
from function_examples import example_call
from kernels.conftest import KERNELS

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.function import REQUIRED
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.graphs.graph import Graph, Node, Value
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.resolve import Request, resolve

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

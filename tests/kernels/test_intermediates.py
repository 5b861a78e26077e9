"""Programs with values that are too large for a compiler, which XLA would answer by ending the process."""

import math

import numpy as np
import pytest
from function_examples import example_call
from kernels.conftest import KERNELS
from kernels.graphs import GraphWriter

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.intermediates import check_intermediates
from shardcall_server.kernels.graphs.plan import MAX_VALUE_BYTES


def enlarged(shape, axis, size):
    """Returns a shape with an axis so long that there are about ``size`` elements; a scalar stays one."""
    if not shape:
        return shape
    others = math.prod(shape) // shape[axis]
    sizes = list(shape)
    sizes[axis] = size // others
    return tuple(sizes)


def enlarged_call(name, axis, size):
    """Returns the types of the operands and the parameters of a large call, like the example of a function."""
    operands, parameters = example_call(name)
    if isinstance(shape := parameters.get("shape"), tuple) and name != "reshape":
        parameters["shape"] = enlarged(shape, axis, size)
    if "size" in parameters:
        parameters["size"] = size
    return [None if x is None else ArrayType(enlarged(x.shape, axis, size), x.dtype) for x in operands], parameters


def in_a_graph(name, axis, size):
    """Returns the inputs and a graph: scalars are broadcast, and the results of the function are summed."""
    types, parameters = enlarged_call(name, axis, size)
    write = GraphWriter()
    scalars = [np.ones((), operand.dtype) for operand in types if operand is not None]
    values = iter(range(len(scalars)))
    operands = [
        None
        if operand is None
        else write("broadcast_to", write.x(next(values)), shape=operand.shape)
        if operand.shape
        else write.x(next(values))
        for operand in types
    ]
    graph, inputs = write.call([write("sum", write(name, *operands, **parameters), axis=None)], scalars)
    return inputs, graph


def test_every_type_of_a_lowered_program_is_counted():
    size = MAX_VALUE_BYTES // 16
    for text in (
        f"tensor<2x{size}xcomplex<f64>>",
        f"(tensor<4xf32>) -> tensor<{size}x17xui8>",
        f"tensor<{size}x16x9xi1>",
    ):
        with pytest.raises(CallError, match="graph computes an array of") as refused:
            check_intermediates("graph", text)
        assert (refused.value.reason, refused.value.field) == (Reason.CALL_TOO_LARGE, "operands")
    for text in (f"tensor<{size}xcomplex<f64>>", f"tensor<{size}x2xf64>", f"tensor<{size}x16x8xi1>", "tensor<f64>"):
        check_intermediates("graph", text)


def test_a_square_inside_a_decomposition_is_refused(run):
    inputs, graph = in_a_graph("svdvals", 0, 2**40)
    with pytest.raises(CallError, match="computes an array of f64"):
        run.program(KERNELS["graph"], *inputs, graph=graph, mesh={"x": 8})

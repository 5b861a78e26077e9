"""Products in programs take transposed operands as they were before the transposition; results are NumPy's."""

import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.graphs import GraphWriter

from shardcall_core.layouts.layout import ArrayType

GRAPH = KERNELS["graph"]
ROWS = ("x", None)

PRODUCTS = {
    "matrix and vector": ([(4099, 3), (4099,)], lambda w, a, b: w("matmul", w("transpose", a), b)),
    "vector and matrix": ([(3,), (4099, 3)], lambda w, a, b: w("matmul", a, w("transpose", b, axes=(1, 0)))),
    "both": ([(13, 11), (5, 13)], lambda w, a, b: w("matmul", w("transpose", a), w("transpose", b))),
    "twice": ([(11, 13), (13, 5)], lambda w, a, b: w("matmul", w("transpose", w("transpose", a)), b)),
    "of itself": ([(13, 11), (13,)], lambda w, a, b: w("matmul", w("transpose", a), a)),
    "with its parameter": ([(11, 13), (13, 5)], lambda w, a, b: w("matmul", w("transpose", a), b, transpose_lhs=True)),
    "stack": ([(3, 13, 11), (13,)], lambda w, a, b: w("matmul", w("transpose", a, axes=(0, -1, -2)), b)),
    "other axes": ([(11, 13, 3), (13,)], lambda w, a, b: w("matmul", w("transpose", a, axes=(2, 0, 1)), b)),
    "labels": ([(3, 13, 11), (13,)], lambda w, a, b: w("einsum", w("transpose", a), b, subscripts="ikb,k->bi")),
    "ellipsis": ([(3, 13), (13,)], lambda w, a, b: w("einsum", w("transpose", a), b, subscripts="k...,k->...")),
    "no rows": ([(0, 5), (0, 3)], lambda w, a, b: w("matmul", w("transpose", a), b)),
    "no columns": ([(5, 0), (5,)], lambda w, a, b: w("matmul", w("transpose", a), b)),
}


def last_node(run, name, **how):
    shapes, product = PRODUCTS[name]
    write = GraphWriter()
    types = [ArrayType(shape, np.dtype(np.float64)) for shape in shapes]
    graph, present = write.call([product(write, write.x(0), write.x(1))], types)
    return GRAPH.plans(run.resolve(GRAPH, *present, graph=graph, **how).problem)[0].nodes[-1]


@pytest.mark.parametrize(
    ("name", "transposes"),
    [
        ("matrix and vector", (True, False)),
        ("vector and matrix", (False, True)),
        ("both", (True, True)),
        ("twice", (False, False)),
        ("of itself", (True, False)),
        ("with its parameter", (False, False)),
        ("stack", (True, False)),
        ("other axes", (False, False)),
    ],
)
def test_which_transposes_are_folded(run, name, transposes):
    node = last_node(run, name, mesh={"x": 8})
    parameters = node.problem.parameters
    assert (parameters.transpose_lhs, parameters.transpose_rhs) == transposes
    assert (node.operands[0].node < 0) == (name != "other axes")


def test_labels_follow_the_axes_before_a_transposition(run):
    node = last_node(run, "labels", mesh={"x": 8})
    assert (node.problem.parameters.subscripts, node.operands[0].node) == ("abc,b->ac", -1)


def test_a_spec_of_the_transposed_operand_is_kept(run):
    write = GraphWriter()
    product = write("matmul", write("transpose", write.x(0)), write.x(1))
    write.nodes[-1] = write.nodes[-1]._replace(in_specs=((("x",), ()),))
    graph, types = write.call([product], [ArrayType(shape, np.dtype(np.float64)) for shape in ((16, 8), (16,))])
    node = GRAPH.plans(run.resolve(GRAPH, *types, graph=graph, mesh={"x": 8}).problem)[0].nodes[-1]
    assert (node.operands[0].node, node.problem.in_specs[0]) == (0, (("x",), ()))


def test_derivatives_of_folded_products(run, values):
    write = GraphWriter()
    graph, _ = write.call([write("sum", write("matmul", write("transpose", write.x(0)), write.x(1)))])
    a, y = values.normal((13, 5), np.float64), values.normal((13,), np.float64)
    _, gradient = run(GRAPH, a, y, graph=graph, transform="value_and_grad", wrt=(0,), mesh={"x": 4}, in_specs=[ROWS])
    np.testing.assert_allclose(gradient, np.broadcast_to(y[:, None], a.shape), rtol=1e-14)

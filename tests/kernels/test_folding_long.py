"""The tests of `test_folding.py` that take long."""

import numpy as np
import pytest
from kernels.graphs import GraphWriter
from kernels.test_folding import GRAPH, PRODUCTS

pytestmark = pytest.mark.long


def numpys(inputs, graph):
    values = {(-1, i): x for i, x in enumerate(inputs)}
    for i, node in enumerate(graph.nodes):
        operands, parameters = [values[value] for value in node.operands], dict(node.parameters)
        if node.kernel == "transpose":
            values[i, 0] = np.transpose(*operands, parameters.get("axes"))
        elif node.kernel == "einsum":
            values[i, 0] = np.einsum(parameters["subscripts"], *operands)
        else:
            lhs, rhs = operands
            values[i, 0] = np.matmul(lhs.mT if parameters.get("transpose_lhs") else lhs, rhs)
    return values[graph.results[0]] + 0.0


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(("mesh", "axis"), [({"x": 8}, 0), ({"x": 3}, -1), ({"x": 1}, 0)])
def test_products_of_transposed_arrays_are_numpys(run, values, same, name, mesh, axis):
    (left, right), product = PRODUCTS[name]
    write = GraphWriter()
    inputs = [values.small(shape, np.dtype(np.float64)) for shape in (left, right)]
    graph, present = write.call([product(write, write.x(0), write.x(1))], inputs)
    specs = [tuple("x" if i == axis % x.ndim else None for i in range(x.ndim)) for x in present]
    same(run(GRAPH, *present, graph=graph, mesh=mesh, in_specs=specs, padding=np.nan), numpys(present, graph))

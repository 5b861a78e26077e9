"""Every node of a random graph gives what NumPy gives."""

import pytest
from kernels.random_graphs import KERNELS, RandomGraph, assert_near

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's of means of nothing

GRAPH = KERNELS["graph"]
_MAX_RESULTS = 64


def check(run, seed):
    """Compares the result of every node with NumPy's function of its operands, as the mesh computed them."""
    drawn = RandomGraph(seed)
    results = [value for value in drawn.arrays if value.node >= 0][:_MAX_RESULTS]
    graph, used = drawn.write.call(results)
    how = {"mesh": drawn.mesh, "in_specs": [drawn.in_specs[i] for i in used], "graph": graph, "padding": 77}
    returned = run(GRAPH, *(drawn.inputs[i] for i in used), **how)
    values = dict(zip(results, returned if isinstance(returned, tuple) else (returned,), strict=True))
    values |= {drawn.write.x(i): array for i, array in enumerate(drawn.inputs)}
    for value in results:
        node = drawn.write.nodes[value.node]
        operands = [None if v is None else values.get(v) for v in node.operands]
        if all(v is None or a is not None for v, a in zip(node.operands, operands, strict=True)):
            where = f"seed {seed}, node {value.node}: {node}"
            assert_near(values[value], value.number, drawn.references[value.node], operands, where)


@pytest.mark.parametrize("seed", range(4))
def test_every_node_is_numpys(run, seed):
    check(run, seed)

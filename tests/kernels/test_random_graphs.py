"""Every node of a random graph gives what NumPy gives, and gradients are those of finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.random_graphs import KERNELS, RandomGraph, assert_near

from shardcall_core.graphs.graph import Value

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's of means of nothing

GRAPH = KERNELS["graph"]
_SHORT, _LONG, _FUZZ, _BLOCK = 4, 300, 5000, 100
_GRADIENTS = 200
_MAX_RESULTS = 64


def check(run, seed):
    """Compares the result of every node with NumPy's function of its operands, as the mesh computed them."""
    drawn = RandomGraph(seed)
    results = [value for value in drawn.arrays if value.node >= 0][:_MAX_RESULTS]
    graph, used = drawn.write.call(results)
    specs = [drawn.in_specs[i] for i in used]
    how = {"mesh": drawn.mesh, "in_specs": specs, "graph": graph, "padding": 77}
    returned = run(GRAPH, *(drawn.inputs[i] for i in used), **how)
    values = dict(zip(results, returned if isinstance(returned, tuple) else (returned,), strict=True))
    values |= {drawn.write.x(i): array for i, array in enumerate(drawn.inputs)}
    for value in results:
        node = drawn.write.nodes[value.node]
        operands = [None if v is None else values.get(v) for v in node.operands]
        if all(v is None or a is not None for v, a in zip(node.operands, operands, strict=True)):
            where = f"seed {seed}, node {value.node}: {node}"
            assert_near(values[value], value.number, drawn.references[value.node], operands, where)


@pytest.mark.parametrize("seed", [pytest.param(i, marks=pytest.mark.long if i >= _SHORT else ()) for i in range(_LONG)])
def test_every_node_is_numpys(run, seed):
    check(run, seed)


@pytest.mark.long
@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_FUZZ // _BLOCK))
def test_thousands_of_graphs(run, block):
    for seed in range(block * _BLOCK, (block + 1) * _BLOCK):
        check(run, f"fuzz {seed}")


@pytest.mark.parametrize("seed", [pytest.param(i, marks=pytest.mark.long if i >= 2 else ()) for i in range(_GRADIENTS)])
def test_gradients_are_those_of_finite_differences(run, seed):
    drawn = RandomGraph(seed, is_smooth=True, max_nodes=12)
    write, last = drawn.write, list(drawn.arrays)[-1]
    weights = np.random.default_rng(seed).normal(size=drawn.arrays[last].shape)
    drawn.inputs.append(weights)
    total = write("sum", write("multiply", last, write.x(len(drawn.inputs) - 1)))
    graph, used = write.call([total])
    wrt = tuple(i for i, index in enumerate(used) if drawn.inputs[index] is not weights)
    if not wrt:
        pytest.skip("the last value does not depend on an input")
    specs = [drawn.in_specs[i] if i < len(drawn.in_specs) else None for i in used]
    inputs = [drawn.inputs[i] for i in used]
    how = {"mesh": drawn.mesh, "in_specs": specs, "graph": graph, "padding": float("nan")}
    value, *slopes = run(GRAPH, *inputs, transform="value_and_grad", wrt=wrt, **how)
    assert np.isclose(value, loss(drawn, last, weights, drawn.inputs), rtol=1e-9, atol=1e-9, equal_nan=True)
    if np.isnan(value):
        return  # of a mean of nothing
    for i, slope in zip(wrt, slopes, strict=True):
        direction = np.random.default_rng(i).normal(size=slope.shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [x + step * direction if j == used[i] else x for j, x in enumerate(drawn.inputs)]
            ends.append(loss(drawn, last, weights, moved))
        expected = (ends[0] - ends[1]) / 2e-6
        scale = np.abs(slope * direction).sum() + 1
        assert abs((slope * direction).sum() - expected) < 1e-5 * scale, f"input {used[i]} of {write.nodes}"


def loss(drawn, last, weights, inputs):
    """NumPy's weighted sum of a value."""
    values = {drawn.write.x(i): array for i, array in enumerate(inputs)}
    for i, (node, reference) in enumerate(zip(drawn.write.nodes, drawn.references, strict=False)):
        returned = reference(*(None if v is None else values[v] for v in node.operands))
        for number, array in enumerate(returned if isinstance(returned, tuple) else (returned,)):
            values[Value(i, number)] = np.asarray(array)
    return (values[last] * weights).sum()

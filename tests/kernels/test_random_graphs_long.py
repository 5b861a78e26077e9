"""The tests of `test_random_graphs.py` that take long."""

import numpy as np
import pytest
from kernels import test_random_graphs as short
from kernels.conftest import with_cases
from kernels.random_graphs import RandomGraph
from kernels.test_random_graphs import GRAPH, check

from shardcall_core.graphs.graph import Value

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

_FUZZ, _BLOCK = 5000, 100

test_every_node_is_numpys = with_cases(short.test_every_node_is_numpys, {"seed": range(300)})


@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_FUZZ // _BLOCK))
def test_thousands_of_graphs(run, block):
    for seed in range(block * _BLOCK, (block + 1) * _BLOCK):
        check(run, f"fuzz {seed}")


@pytest.mark.parametrize("seed", range(200))
def test_gradients_are_those_of_finite_differences(run, seed):
    drawn = RandomGraph(seed, is_smooth=True, max_nodes=12)
    write, last = drawn.write, list(drawn.arrays)[-1]
    weights = np.random.default_rng(seed).normal(size=drawn.arrays[last].shape)
    drawn.inputs.append(weights)
    graph, used = write.call([write("sum", write("multiply", last, write.x(len(drawn.inputs) - 1)))])
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

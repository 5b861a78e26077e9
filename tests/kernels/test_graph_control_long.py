"""The tests of `test_graph_control.py` that take long."""

import numpy as np
import pytest
from kernels.graphs import GraphWriter
from kernels.test_graph_control import GRAPH, node_graph

from shardcall_core.call_error import CallError

pytestmark = pytest.mark.long


def test_only_the_branch_that_runs_refuses_values(run):
    write = GraphWriter()
    power = write.graph(write("power", write.x(0), write.x(1)))
    write = GraphWriter()
    graph = node_graph(
        "cond",
        0,
        1,
        2,
        then=power,
        otherwise=write.graph(write("negative", write.x(0))),
        then_inputs=(0, 1),
        otherwise_inputs=(0,),
    )
    two, bad = np.array([2, 3]), np.array([1, -1])
    assert run(GRAPH, np.False_, two, bad, graph=graph).tolist() == [-2, -3]
    with pytest.raises(CallError, match="node 0, cond: node 0, power: y holds a negative integer"):
        run(GRAPH, np.True_, two, bad, graph=graph)

"""Loops, scans and branches of graphs on other meshes."""

import numpy as np
import pytest
from kernels import test_graph_control as short
from kernels.conftest import with_cases
from kernels.graphs import GraphWriter
from kernels.test_graph_control import GRAPH, MESHES, node_graph

from shardcall_core.call_error import CallError

pytestmark = pytest.mark.long

HOWS = {"how": MESHES}
test_loops_of_a_number_of_iterations = with_cases(short.test_loops_of_a_number_of_iterations, HOWS)
test_loops_with_a_condition = with_cases(short.test_loops_with_a_condition, HOWS)
test_scans_take_rows_and_stack_results = with_cases(
    short.test_scans_take_rows_and_stack_results, HOWS | {"reverse": [False, True]}
)
test_branches = with_cases(short.test_branches, HOWS)


def test_only_the_branch_that_runs_refuses_values(run):
    write = GraphWriter()
    power = write.graph(write("power", write.x(0), write.x(1)))
    write = GraphWriter()
    branches = {"then": power, "otherwise": write.graph(write("negative", write.x(0)))}
    graph = node_graph("cond", 0, 1, 2, **branches, then_inputs=(0, 1), otherwise_inputs=(0,))
    two, bad = np.array([2, 3]), np.array([1, -1])
    assert run(GRAPH, np.False_, two, bad, graph=graph).tolist() == [-2, -3]
    with pytest.raises(CallError, match="node 0, cond: node 0, power: y holds a negative integer"):
        run(GRAPH, np.True_, two, bad, graph=graph)

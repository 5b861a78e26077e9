"""Loops, scans and branches of graphs on other meshes."""

import numpy as np
import pytest
from kernels import test_graph_control as short
from kernels.conftest import with_cases
from kernels.graphs import GraphWriter
from kernels.test_graph_control import GRAPH, HEAT_MESHES, MESHES, RANDOM, node_graph

from shardcall_core.call_error import CallError
from shardcall_core.element_types import NAMED

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


test_steps_of_the_heat_equation_are_numpys_bit_for_bit = with_cases(
    short.test_steps_of_the_heat_equation_are_numpys_bit_for_bit, {"how, shape": HEAT_MESHES}
)


@pytest.mark.parametrize("name", ["float32", "int8", "bfloat16", "complex128"])
def test_results_may_become_other_inputs_and_none(run, name):
    dtype = NAMED[name]
    x, y = (RANDOM.integers(0, 3, size=(13, 9)).astype(dtype) for _ in range(2))
    write = GraphWriter()
    total = write("add", write.x(0), write.x(1))
    graph = write.graph(write.x(1), total, write("max", write("real", total), axis=0))
    how = {"graph": graph, "carried": (1, 0, -1), "mesh": {"a": 4, "b": 2}, "in_specs": [("b",), ("a", "b")]}
    results = run(GRAPH, y, x, np.int64(5), **how)
    for _ in range(5):
        x, y = y, x + y
    for result, expected in zip(results, (x, y, np.real(y).max(axis=0)), strict=True):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        assert np.array_equal(result, expected)


def test_refused_values_of_any_iteration_refuse_the_call(run):
    write = GraphWriter()
    graph = write.graph(write("power", write.x(1), write.x(0)), write("subtract", write.x(0), write.x(2)))
    call = {"graph": graph, "carried": (-1, 1)}
    base, exponents, one = np.array([2, 3]), np.array([2, 1]), np.int64(1)
    assert run(GRAPH, base, exponents, one, np.int64(2), **call)[0].tolist() == [2, 1]
    with pytest.raises(CallError, match="power: y holds a negative integer"):
        run(GRAPH, base, exponents, one, np.int64(4), **call)

"""The tests of `test_graph_loop.py` that take long."""

import numpy as np
import pytest
from kernels import test_graph_loop as short
from kernels.conftest import with_cases
from kernels.graphs import GraphWriter
from kernels.test_graph_loop import GRAPH, MESHES, RANDOM

from shardcall_core.call_error import CallError
from shardcall_core.element_types import NAMED

pytestmark = pytest.mark.long

test_steps_of_the_heat_equation_are_numpys_bit_for_bit = with_cases(
    short.test_steps_of_the_heat_equation_are_numpys_bit_for_bit, {"how, shape": MESHES}
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

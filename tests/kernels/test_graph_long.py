"""The tests of `test_graph.py` that take long."""

import numpy as np
import pytest
from kernels import test_graph as short
from kernels.conftest import with_cases
from kernels.graphs import GraphWriter
from kernels.test_graph import GRAPH, KERNELS, RANDOM

from shardcall_core.call_error import CallError, Reason
from shardcall_core.graphs.graph import Value
from shardcall_core.layouts.layout import ArrayType

pytestmark = pytest.mark.long


test_what_a_compiler_would_rewrite_is_computed_as_written = with_cases(
    short.test_what_a_compiler_would_rewrite_is_computed_as_written,
    {"name": ["float64", "float16", "float32", "float8_e5m2"]},
)


def test_refusals_of_values_name_their_node(run):
    write = GraphWriter()
    graph = write.graph(write("power", write.x(0), write("negative", write.x(1))))
    with pytest.raises(CallError, match=r"^node 1, power: y holds a negative integer") as raised:
        run(GRAPH, np.arange(4), np.arange(4), graph=graph)
    assert raised.value.reason == Reason.INVALID_VALUE


def test_a_graph_has_the_layouts_of_its_kernels(run):
    write = GraphWriter()
    total = write("sum", write("transpose", write("add", write.x(0), write.x(1))), axis=1)
    graph = write.graph(total, write("negative", write.x(0)), write.x(0))
    matrix, row = ArrayType((5, 16), np.dtype("f4")), ArrayType((16,), np.dtype("f4"))
    how = {"mesh": {"a": 4, "b": 2}, "graph": graph}
    problem = run.resolve(GRAPH, matrix, row, in_specs=[("a", "b")], **how).problem
    assert problem.in_specs[1] == (("b",),)  # as add fills it in
    assert problem.out_specs == ((("b",),), (("a",), ("b",)), (("a",), ("b",)))
    asked = [("a",), (None, "a"), ()]
    problem = run.resolve(GRAPH, matrix, row, in_specs=[("a", "b")], out_specs=asked, **how).problem
    assert problem.out_specs == ((("a",),), ((), ("a",)), ((), ()))
    x, y = RANDOM.normal(size=(5, 16)).astype("f4"), RANDOM.normal(size=16).astype("f4")
    results = run(GRAPH, x, y, in_specs=[("a", "b")], out_specs=asked, **how)
    assert np.allclose(results[0], (x + y).sum(0), rtol=1e-5, atol=1e-6)
    assert np.array_equal(results[1], -x)
    assert np.array_equal(results[2], x)


@pytest.mark.parametrize("kernel", ["negative", "laplacian"])
def test_a_spec_may_leave_out_the_last_axes(run, kernel):
    write = GraphWriter()
    first = write(kernel, write.x(0))
    write.nodes[-1] = write.nodes[-1]._replace(out_specs=((("b",),),))
    x, how = RANDOM.normal(size=(13, 9)), {"mesh": {"a": 4, "b": 2}, "graph": write.graph(first)}
    (plan,) = GRAPH.plans(run.resolve(GRAPH, x, **how).problem)
    assert plan.specs[Value(0, 0)] == (("b",), ())
    assert np.allclose(run(GRAPH, x, **how), run(KERNELS[kernel], x), rtol=1e-12)


def test_angles_of_zeros_that_the_compiler_finds(run, same):
    """XLA's are NaN."""
    write = GraphWriter()
    filled = write("shift", write.x(0), axis=0, shift=3)
    graph = write.graph(write("arctan2", filled, write("negative", filled)))
    for dtype in (np.float32, np.float64):
        zeros = np.zeros((2, 3, 5), dtype)
        same(run(GRAPH, zeros + 1, graph=graph, mesh={"x": 8}), np.arctan2(zeros, -zeros))


def test_equal_calls_of_other_layouts_are_other_steps(run):
    write, x = GraphWriter(), RANDOM.normal(size=(13, 9))
    results = []
    for spec in ((("x",), ()), ((), ("x",)), ((), ())):
        moved = write("reshard", write.x(0))
        write.nodes[-1] = write.nodes[-1]._replace(out_specs=(spec,))
        added = write("add", moved, moved)
        results += [added, write("tanh", added), write("cumsum", added, axis=0)]
    graph = write.graph(*results)
    results = run(GRAPH, x, graph=graph, mesh={"x": 4}, padding=float("nan"))
    for i, expected in enumerate([x + x, np.tanh(x + x), np.cumsum(x + x, axis=0)] * 3):
        np.testing.assert_allclose(results[i], expected, rtol=1e-12, atol=1e-12)

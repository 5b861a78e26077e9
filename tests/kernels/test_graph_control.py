"""Loops, scans and branches that are nodes of a graph give what Python's give, and maps each index after the other."""

import re

import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.graphs import GraphWriter

from shardcall_core.call_error import CallError
from shardcall_core.layouts.layout import ArrayType

GRAPH = KERNELS["graph"]
RANDOM = np.random.default_rng(9)
MESHES = [
    {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]},
    {"mesh": {"x": 3}, "in_specs": [(None, "x")]},
    {"mesh": {"x": 1}},
]


def doubled():
    """The graph of x·2 + 1."""
    write = GraphWriter()
    return write.graph(write("add", write("add", write.x(0), write.x(0)), write.x(1)))


def node_graph(kernel, *operands, results=1, **parameters):
    """A graph of one node."""
    write = GraphWriter()
    node = write(kernel, *map(write.x, operands), **parameters)
    return write.graph(*(node._replace(number=i) for i in range(results)))


@pytest.mark.parametrize("how", MESHES[:1])
def test_loops_of_a_number_of_iterations(run, how):
    u, one = RANDOM.integers(-9, 9, size=(13, 9)), np.int64(1)
    expected = u * 8 + 7
    static = node_graph("graph", 0, 1, graph=doubled(), carried=(0,), count=3)
    assert np.array_equal(run(GRAPH, u, one, graph=static, padding=9, **how), expected)
    dynamic = node_graph("graph", 0, 1, 2, graph=doubled(), carried=(0,))
    for times in (3, 0):
        assert np.array_equal(run(GRAPH, u, one, np.int64(times), graph=dynamic, **how), expected if times else u)
    with pytest.raises(CallError, match=r"node 0, graph: times.*not from 0 to 1,024; make it the outermost loop"):
        run(GRAPH, u, one, np.int64(1025), graph=dynamic, **how)


def test_loops_of_loops_are_loops_of_the_program(run):
    inner = node_graph("graph", 0, 1, graph=doubled(), carried=(0,), count=2)
    outer = node_graph("graph", 0, 1, graph=inner, carried=(0,), count=3)
    u, one = ArrayType((13, 9), np.dtype("i8")), ArrayType((), np.dtype("i8"))
    program = run.program(GRAPH, u, one, graph=outer, mesh={"x": 8}, in_specs=[("x", None)])
    assert program.compiled.as_text().count(" while(") == 2
    assert run(GRAPH, np.ones((2, 2), int), np.int64(1), graph=outer).tolist() == [[127, 127]] * 2


@pytest.mark.parametrize("how", MESHES[:1])
def test_loops_with_a_condition(run, how):
    write = GraphWriter()
    total = write("add", write.x(0), write.x(0))
    body = write.graph(total, write("less", write("max", total), write.x(1)))
    u, limit = np.ones((5, 3), np.float32), np.float32(100)
    graph = node_graph("graph", 0, 1, 2, 3, results=2, graph=body, carried=(0, 2), condition=1)
    # Result 1 becomes an operand that the graph does not read: whether there is a first iteration.
    for begins, expected in ((True, 128), (False, 1)):
        result, _ = run(GRAPH, u, limit, np.bool_(begins), np.int64(2**62), graph=graph, **how)
        assert np.array_equal(result, u * expected)
    with pytest.raises(CallError, match="make it the outermost loop"):
        run(GRAPH, u * 0, limit, np.True_, np.int64(2**62), graph=graph, **how)


@pytest.mark.parametrize("how", MESHES[:1])
@pytest.mark.parametrize("reverse", [False])
def test_scans_take_rows_and_stack_results(run, how, reverse):
    write = GraphWriter()
    total = write("add", write.x(0), write.x(1))
    body = write.graph(total, write("multiply", total, write.x(2)), write("max", write.x(1), axis=0))
    xs, first, factor = RANDOM.normal(size=(7, 5)), RANDOM.normal(size=5), np.float64(3)
    graph = node_graph(
        "scan", 0, 1, 2, results=3, graph=body, carried=(0, -1, -1), scanned=(1,), length=7, reverse=reverse
    )
    specs = [None, *how.get("in_specs", [])]
    last, stacked, largest = run(
        GRAPH, first, xs, factor, graph=graph, padding=float("nan"), mesh=how["mesh"], in_specs=specs
    )
    sums, total = np.empty_like(xs), first
    for i in reversed(range(7)) if reverse else range(7):
        sums[i] = total = total + xs[i]
    assert np.array_equal(last, total)
    assert np.array_equal(stacked, sums * 3)
    assert np.array_equal(largest, xs.max(axis=1))


@pytest.mark.parametrize("how", MESHES[:1])
def test_branches(run, how):
    write = GraphWriter()
    other = write.graph(write("negative", write.x(0)))
    graph = node_graph("cond", 0, 1, 2, then=doubled(), otherwise=other, then_inputs=(0, 1), otherwise_inputs=(0,))
    u, specs = RANDOM.normal(size=(13, 9)), [None, *how.get("in_specs", [])]
    for pred, expected in ((True, u + u + 1), (False, -u)):
        result = run(GRAPH, np.bool_(pred), u, np.float64(1), graph=graph, mesh=how["mesh"], in_specs=specs)
        assert np.array_equal(result, expected)


def test_what_is_refused(refused):
    x, one, flag = ArrayType((4,), np.dtype("f4")), ArrayType((), np.dtype("f4")), ArrayType((), np.dtype("?"))
    large = ArrayType((1 << 26,), np.dtype("f4"))
    scan = {"graph": doubled(), "carried": (-1,), "length": 4}
    cond = {"then": doubled(), "then_inputs": (0, 1), "otherwise_inputs": (0, 1)}
    write = GraphWriter()
    bools = write.graph(write("less", write.x(0), write.x(1)))
    loop = {"graph": doubled(), "carried": (0,)}
    inputs = {"then_inputs": (0, 5)}
    for operands, graph, message in [
        ((large, one), node_graph("graph", 0, 1, **loop, count=1000), "outermost loop, which runs in"),
        ((x, one), node_graph("graph", 0, 1, **loop, count=-1), "count=-1"),
        ((x, one), node_graph("graph", 0, 1, **loop, condition=1), "condition=1"),
        ((x, one), node_graph("scan", 0, 1, **scan, scanned=(0, 1)), "scanned is .*4 rows"),
        ((x, one), node_graph("scan", 0, 1, **scan | {"length": 5}, scanned=(0,)), "scanned is .*5 rows"),
        ((flag, x, one), node_graph("cond", 0, 1, 2, **cond, otherwise=bools), "then has the results float32"),
        ((x, x, one), node_graph("cond", 0, 1, 2, **cond, otherwise=doubled()), "pred is float32"),
        ((flag, x, one), node_graph("cond", 0, 1, 2, **cond | inputs, otherwise=doubled()), "has 2 inputs"),
        ((x,), node_graph("graph", 0, graph="{"), "graph is a program"),
    ]:
        error = refused(GRAPH, *operands, graph=graph)
        assert re.search(message, error.message), error.message


def test_maps_that_are_refused(refused):
    write = GraphWriter()
    body = write.graph(write("add", write.x(0), write.x(1)))
    x, y = ArrayType((4, 3), np.dtype("f4")), ArrayType((3,), np.dtype("f4"))

    def message(*operands, **parameters):
        how = {"graph": body, "in_axes": (0, -1), "out_axes": (0,), "size": 4, **parameters}
        outer = GraphWriter()
        graph = outer.graph(outer("vmap", *map(outer.x, range(len(operands))), **how))
        return refused(GRAPH, *operands, graph=graph).message

    assert "has 2 inputs and 1 operands came" in message(x)
    assert "in_axes is (2, -1)" in message(x, y, in_axes=(2, -1))
    assert "in_axes is (0,)" in message(x, y, in_axes=(0,))
    assert "an axis of length 5, the size" in message(x, y, size=5)
    assert "size=-1" in message(x, y, size=-1)
    assert "out_axes is (2,)" in message(x, y, out_axes=(2,))
    assert "out_axes is ()" in message(x, y, out_axes=())
    inner = GraphWriter()
    loop = inner.graph(inner("graph", inner.x(0), inner.x(1), graph=body, carried=(0,), count=1000))
    many = ArrayType((1 << 14, 1 << 10), np.dtype("f4"))
    error = message(many, ArrayType((), np.dtype("f4")), graph=loop, size=1 << 14)
    assert "node 0, vmap: the loop would take" in error
    inner = GraphWriter()
    first = inner("roll", inner.x(0), shift=1, axis=0)
    inner.nodes[-1] = inner.nodes[-1]._replace(strategy="gspmd")
    error = message(x, graph=inner.graph(first), in_axes=(0,))
    assert "node 0, vmap: " in error
    assert "strategy 'gspmd' of roll cannot be batched; leave the strategy out" in error

"""A graph's results are those of its calls one by one."""

import re
from collections import Counter
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.graphs import GraphWriter, heat_step
from rows import rows

from shardcall_core.call_error import Reason
from shardcall_core.element_types import NAMED
from shardcall_core.graphs.graph import Graph, Node, Value
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.analysis import collectives, memory
from shardcall_server.compilation.keys import Platform
from shardcall_server.known_answers.suite import Suite

GRAPH = KERNELS["graph"]
RANDOM = np.random.default_rng(7)


REWRITTEN = {
    "contracted": lambda w, x, y, z: w("add", w("multiply", x, y), z),
    "contracted beyond a move": lambda w, x, y, z: w("subtract", z, w("flip", w("multiply", x, y), axis=0)),
    "quotients": lambda w, x, y, z: w("divide", w("divide", x, y), z),
    "quotient of a quotient": lambda w, x, y, z: w("divide", x, w("divide", y, z)),
    "logarithm of a power": lambda w, x, y, z: w("log", w("exp", w("multiply", x, y))),
    "product of powers": lambda w, x, y, z: w("multiply", w("exp", x), w("exp", y)),
    "square of a root": lambda w, x, y, z: w("multiply", w("sqrt", x), w("sqrt", x)),
    "by a root": lambda w, x, y, z: w("divide", x, w("sqrt", y)),
    "sums": lambda w, x, y, z: w("subtract", w("add", w("add", x, y), z), y),
    "factor": lambda w, x, y, z: w("add", w("multiply", x, z), w("multiply", y, z)),
}


@pytest.mark.parametrize("name", ["bfloat16"])
def test_what_a_compiler_would_rewrite_is_computed_as_written(run, name):
    dtype = NAMED[name]
    sizes = np.exp(RANDOM.normal(size=(3, 4099)) * 2) * [[50], [1], [1]]
    sizes = np.minimum(sizes, float(ml_dtypes.finfo(dtype).max))
    write = GraphWriter()
    results = [function(write, *map(write.x, range(3))) for function in REWRITTEN.values()]
    graph, inputs = write.call(results, list(sizes.astype(dtype)))
    check(run, graph, inputs, {"mesh": {"x": 3}, "in_specs": [("x",)]})


def test_differences_of_complex_numbers_are_not_cancelled(run, same):
    x, y, write = np.array([np.inf + 1j, 1e20 + 1e20j, 3 + 2j]), np.array([1 + 1j, 1 + 2j, 5]), GraphWriter()
    results = [write("add", write.x(0), write("subtract", write.x(i), write.x(0))) for i in (0, 1)]
    graph, inputs = write.call(results, [x, y])
    computed = run(GRAPH, *inputs, graph=graph, exact=True, mesh={"x": 1}, in_specs=[("x",)] * 2)
    with np.errstate(invalid="ignore"):
        same(computed[0], x + (x - x))
        same(computed[1], x + (y - x))


def check(run, graph, inputs, how):
    """Compares a graph with separate programs of its nodes, bit for bit."""
    (spec,) = how["in_specs"]
    values = {(-1, i): x for i, x in enumerate(inputs)}

    def layout(arrays):
        in_specs = [spec if array is not None and array.ndim == len(spec) else None for array in arrays]
        return {"mesh": how["mesh"], "in_specs": in_specs}

    results = run(GRAPH, *inputs, graph=graph, exact=True, padding=float("nan"), **layout(inputs))
    for i, node in enumerate(graph.nodes):
        operands = [None if value is None else values[value] for value in node.operands]
        with np.errstate(all="ignore"):
            values[i, 0] = run(KERNELS[node.kernel], *operands, **layout(operands), **dict(node.parameters))
    for i, value in enumerate(graph.results):
        result = results[i] if isinstance(results, tuple) else results
        np.testing.assert_array_equal(result, values[value], f"result {i}", strict=True)


def test_a_node_may_have_a_spec_and_a_strategy(run, refused):
    write = GraphWriter()
    x = write.x(0)
    write.nodes.append(Node("roll", (x,), (("axis", 0), ("shift", 1)), "halo", (((), ("a",)),)))
    graph = write.graph(write("add", x, Value(0, 0)))
    array = RANDOM.normal(size=(13, 9))
    result = run(GRAPH, array, graph=graph, mesh={"a": 4}, in_specs=[("a", None)])
    assert np.array_equal(result, array + np.roll(array, 1, 0))
    error = refused(GRAPH, ArrayType((4,), np.dtype("f4")), graph=graph)
    assert error.message.startswith("node 0, roll: the spec of x")


def test_empty_arrays_and_scalars(run, same):
    write = GraphWriter()
    graph = write.graph(write("add", write("multiply", write.x(0), write.x(1)), write.x(0)))
    for x in (np.zeros((0, 3)), np.float64(3)):
        same(run(GRAPH, x, np.float64(2), graph=graph, mesh={"x": 8}), np.asarray(x * 2 + x))


def test_results_without_elements_need_no_program(run):
    """XLA refuses to scatter nothing."""
    write = GraphWriter()
    graph = write.graph(write("sum", write("sort", write.x(0)), axis=0))
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("b", "a")]}
    assert run(GRAPH, np.zeros((0, 4)), graph=graph, **how).tolist() == [0] * 4
    refusing = write.graph(write("power", write.x(0), write.x(1)), write.x(1))
    nothing, negative = run(GRAPH, np.zeros((0, 1), int), np.array([-1]), graph=refusing, mesh={"x": 2})
    assert (nothing.shape, negative.tolist()) == ((0, 1), [-1])


@pytest.mark.parametrize("kernel", ["shift", "roll", "laplacian", "diff"])
def test_neighbors_in_empty_arrays(run, kernel):
    write, how = GraphWriter(), {"shift": {"shift": 1, "axis": 0}, "roll": {"shift": 1, "axis": 0}}
    total = write("sum", write(kernel, write.x(0), **how.get(kernel, {})))
    assert run(GRAPH, np.zeros((0, 4)), graph=write.graph(total), mesh={"x": 2}) == 0


X, FIRST = Value(-1, 0), Value(0, 0)


def of_nodes(*nodes, result=FIRST):
    return Graph(nodes, (result,))


def is_refused(kernel, *operands, **parameters):
    """A graph of one node, which is refused."""
    return of_nodes(Node(kernel, operands, tuple(parameters.items())))


REFUSED = [
    (is_refused("negative", X, a=1), "node 0, negative: .* no parameter 'a'"),
    (is_refused("negative", X, X), "node 0, negative: .* takes 1 operands"),
    (of_nodes(Node("negative", (None,)), Node("add", (X, FIRST)), result=Value(1, 0)), "node 0, .* needs operand"),
    (is_refused("negativ", X), "did you mean 'negative'"),
    (is_refused("graph", X, graph=""), "node 0, graph: .* graph is a program"),
    (is_refused("add", X, X, axis=of_nodes(result=X)), "node 0, add: .* no parameter 'axis'"),
    (is_refused("sum", X, axis=of_nodes(result=X)), "node 0, sum: axis=<graph of 0 calls.* of type Graph"),
    (of_nodes(Node("negative", (X,)), result=Value(0, 1)), "result 1 of node 0"),
    (of_nodes(Node("negative", (X,)), Node("negative", (Value(0, 1),)), result=Value(1, 0)), "result 1 of node 0"),
    (is_refused("broadcast_to", X, shape=(2**63 - 1, 4)), "too large"),
    (7, "graph=7"),
    ("", "graph is a program"),
]


@rows("graph, message", REFUSED)
def test_what_is_no_graph_is_refused_by_name(refused, graph, message):
    error = refused(GRAPH, ArrayType((4,), np.dtype("f4")), graph=graph)
    assert re.search(message, error.message), error.message
    assert error.field == "graph"


def test_a_graph_needs_an_operand_for_every_input(refused):
    error = refused(GRAPH, graph=of_nodes(Node("negative", (X,))))
    assert (error.reason, error.field) == (Reason.OPERAND_COUNT, "operands")


def test_numbers_of_another_type_are_other_graphs():
    write = GraphWriter()
    results = [write("sum", write.x(0), keepdims=flag, axis=0) for flag in (1, True, False, 0)]
    assert len(write.call(results)[0].nodes) == 4


def test_a_program_has_the_tests_and_versions_of_its_kernels(run):
    write = GraphWriter()
    graph = write.graph(write("sum", write("sin", write("roll", write.x(0), shift=1)), axis=0))
    resolved = run.resolve(GRAPH, ArrayType((64,), np.dtype("f8")), graph=graph)
    names = ["roll", "sin", "sum"]
    assert resolved.problem.parameters.kernels == tuple(f"{name} {KERNELS[name].version}" for name in names)
    assert [kernel.name for kernel, _ in GRAPH.parts(resolved.problem)] == names
    tests = Suite(KERNELS, Platform("cpu", "", "")).vouching_for(resolved)
    assert "sum" in tests
    assert len([test for test in tests if test.startswith("elementwise float64")]) == 1
    assert not resolved.kernel.is_reproducible(resolved.problem)


def test_a_heat_step_is_one_pass_with_two_permutes(run):
    write = GraphWriter()
    graph = write.graph(heat_step(write))
    u, scalar = ArrayType((1024, 1024), np.dtype("f8")), ArrayType((), np.dtype("f8"))
    program = run.program(GRAPH, u, scalar, scalar, graph=graph, mesh={"x": 8})
    assert [(use.operation, use.count) for use in collectives(program.text)] == [("collective-permute", 2)]
    assert memory(program.compiled).temp_bytes < 64 << 10


def test_stencils_exchange_their_halos_whatever_the_layout_of_the_result(run):
    write, out = GraphWriter(), ((), ("x",))
    first = write("shift", write.x(0), shift=1, axis=0)
    write.nodes[-1] = write.nodes[-1]._replace(out_specs=(out,))
    graph = write.graph(write("negative", first))
    x = RANDOM.normal(size=(13, 9))
    (plan,) = GRAPH.plans(run.resolve(GRAPH, x, graph=graph, mesh={"x": 4}, in_specs=[("x", None)]).problem)
    assert plan.nodes[0].strategy.name == "halo"
    assert plan.specs[Value(0, 0)] == out
    result = run(GRAPH, x, graph=graph, mesh={"x": 4}, in_specs=[("x", None)], padding=float("nan"))
    assert np.array_equal(result, -np.concatenate([np.zeros((1, 9)), x[:-1]]))


def test_equal_nodes_are_traced_once(run, monkeypatch):
    write = GraphWriter()
    value = write.x(0)
    for _ in range(5):
        value = write("add", write("tanh", value), value)
    counts = Counter()
    for name in ("tanh", "add"):
        (strategy, *_) = KERNELS[name].strategies

        def build(problem, mesh, *, name=name, original=strategy.build):
            inner = original(problem, mesh)

            def program(*arrays):
                counts[name] += 1
                return inner(*arrays)

            return program

        monkeypatch.setattr(KERNELS[name], "strategies", (replace(strategy, build=build),))
    run.program(GRAPH, RANDOM.normal(size=(16, 3)), graph=write.graph(value), mesh={"x": 8})
    assert counts == {"tanh": 1, "add": 2}  # the last one is not kept from its neighbors


@pytest.mark.parametrize(("kernel", "parameters"), [("shift", {"shift": 2}), ("pad", {"pad_width": (1, 1)})])
def test_long_chains_that_the_compiler_cannot_take_are_refused(refused, kernel, parameters):
    write = GraphWriter()
    value = write.x(0)
    for _ in range(65):
        value = write(kernel, value, **parameters)
    error = refused(GRAPH, ArrayType((5,), np.dtype("i8")), graph=write.graph(value))
    assert error.reason is Reason.NOT_SUPPORTED
    assert error.message.startswith(f"node 64, {kernel}: 65 calls of pad and shift take each other's results")

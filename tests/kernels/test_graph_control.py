"""Loops, scans and branches give what those of Python give, and maps each index after the other: nodes and graphs."""

import re

import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.graphs import GraphWriter, heat_step

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.argument_checks import check_parameters
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.graphs.loop import MAX_ITERATIONS

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


HEAT_MESHES = [
    ({"mesh": {"x": 8}, "in_specs": [("x", None)]}, (64, 64)),
    ({"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]}, (13, 9)),
    ({"mesh": {"x": 3}, "in_specs": [(None, "x")]}, (3, 5)),
    ({"mesh": {"x": 3}}, (0, 5)),
]


def heat(u):
    neighbors = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
    return u + 0.1 * (neighbors - 4 * u)


@pytest.mark.parametrize(("how", "shape"), HEAT_MESHES[1:2])
def test_steps_of_the_heat_equation_are_numpys_bit_for_bit(run, same, how, shape):
    u, write = RANDOM.normal(size=shape), GraphWriter()
    graph, inputs = write.call([heat_step(write)], [u, np.float64(0.1), np.float64(4)])
    first = next(i for i, value in enumerate(inputs) if value is u)
    specs = [how["in_specs"][0] if i == first else None for i in range(3)] if "in_specs" in how else []
    for times in (1, 4):
        result = run(
            GRAPH,
            *inputs,
            np.int64(times),
            graph=graph,
            exact=True,
            carried=(first,),
            padding=float("nan"),
            mesh=how["mesh"],
            in_specs=specs,
        )
        expected = u
        for _ in range(times):
            expected = heat(expected)
        same(result, expected)


def test_the_iterations_are_a_loop_of_the_program(run):
    u, write = ArrayType((64, 64), np.dtype("f8")), GraphWriter()
    scalar, times = ArrayType((), np.dtype("f8")), ArrayType((), np.dtype("i8"))
    graph, used = write.call([heat_step(write)])
    inputs = [u if i == 0 else scalar for i in used]
    program = run.program(
        GRAPH, *inputs, times, graph=graph, carried=(used.index(0),), mesh={"x": 8}, in_specs=[("x", None)]
    )
    text = program.compiled.as_text()
    assert "while" in text
    assert "all-gather" not in text


def test_carried_results_have_the_specs_of_their_inputs(run):
    write = GraphWriter()
    graph = write.graph(write("flip", write("transpose", write.x(0)), axis=0), write("sum", write.x(0), axis=1))
    x, times = ArrayType((8, 8), np.dtype("f4")), ArrayType((), np.dtype("i8"))
    how = {"mesh": {"a": 4, "b": 2}, "graph": graph, "carried": (0, -1), "in_specs": [("a", "b")]}
    assert run.resolve(GRAPH, x, times, **how).problem.out_specs == ((("a",), ("b",)), (("a",),))
    array = RANDOM.normal(size=(8, 8)).astype("f4")
    rotated, sums = run(GRAPH, array, np.int64(3), **how, out_specs=[(None, "a"), None])
    assert np.array_equal(rotated, np.rot90(array, 3))
    assert np.allclose(sums, np.rot90(array, 2).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("times", [-1, MAX_ITERATIONS + 1, 2**62])
def test_a_launch_has_a_bounded_number_of_iterations(run, times):
    write = GraphWriter()
    graph = write.graph(write("negative", write.x(0)))
    operands = np.ones(5), np.int64(times)
    launch = run.kernel_case(GRAPH, *operands, graph=graph, carried=(0,))  # a server would run it in slices
    with pytest.raises(
        CallError, match="times, the number of iterations of a loop in a program, is not from 0 to 1,024"
    ) as raised:
        run.runner.run(launch, operands)
    assert raised.value.reason == Reason.INVALID_VALUE


def test_loops_that_are_refused(refused):
    write = GraphWriter()
    graph = write.graph(write("add", write.x(0), write.x(1)), write("less", write.x(0), write.x(1)))
    x, times = ArrayType((4,), np.dtype("f4")), ArrayType((), np.dtype("i8"))
    for carried, message in [
        ((0,), "carried has 1 items and the graph 2 results"),
        ((0, 0), "carried is .* another for each result"),
        ((2, -1), "has 2 inputs"),
        ((-2, -1), "has 2 inputs"),
        ((-1, 0), "makes result 1, bool.* input 0, which is float32"),
    ]:
        assert _matches(refused(GRAPH, x, x, times, graph=graph, carried=carried), message)
    assert _matches(refused(GRAPH, x, x, graph=graph, carried=(0, -1)), "times is float32")
    assert _matches(refused(GRAPH, x, times, graph=graph, carried=(0, -1)), "2 inputs and 1 operands came.*and times")
    assert _matches(refused(GRAPH, graph=graph, carried=(0, -1)), "2 inputs and 0 operands")
    assert _matches(refused(GRAPH, x, x, times, graph=graph, carried="x"), "sequence of integers")


@pytest.mark.parametrize(
    ("kernel", "shapes", "limit"),
    [
        ("matmul", [(2048, 2048)] * 2, 122),
        ("convolve", [(1 << 20,), (1024,)], 963),
        ("inv", [(1000, 1000)], 136),
        ("negative", [(2048, 2048)], 4092),
    ],
)
def test_loops_in_programs_are_limited_by_their_work(kernel, shapes, limit):
    write = GraphWriter()
    body = write.graph(write(kernel, *map(write.x, range(len(shapes)))))
    operands = [ArrayType(shape, np.dtype("f8")) for shape in shapes]

    def work(count):
        write = GraphWriter()
        inputs = [write.x(i) for i in range(len(shapes))]
        graph = write.graph(write("graph", *inputs, graph=body, carried=(-1,), count=count))
        signature = GRAPH.validate(tuple(operands), check_parameters(GRAPH, {"graph": graph}))
        return GRAPH.work_bytes(tuple(operands), signature)

    once, many = work(1), work(2)
    assert abs((1 << 38) // (many - once) - limit) <= 1
    assert work(limit - 2) < 1 << 38
    with pytest.raises(CallError, match="the loop would take about as long as reading and writing"):
        work(limit + 2)


def _matches(error, pattern):
    return re.search(pattern, error.message) is not None or pytest.fail(error.message)

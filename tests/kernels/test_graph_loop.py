"""A graph that runs several times in one program returns the results of as many calls."""

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
RANDOM = np.random.default_rng(7)
MESHES = [
    ({"mesh": {"x": 8}, "in_specs": [("x", None)]}, (64, 64)),
    ({"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]}, (13, 9)),
    ({"mesh": {"x": 3}, "in_specs": [(None, "x")]}, (3, 5)),
    ({"mesh": {"x": 3}}, (0, 5)),
]


def heat(u):
    neighbors = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
    return u + 0.1 * (neighbors - 4 * u)


@pytest.mark.parametrize(("how", "shape"), MESHES[1:2])
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

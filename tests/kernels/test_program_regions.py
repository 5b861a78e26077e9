"""Programs of slices at every offset: regions give NumPy's results on meshes that divide no length."""

from collections.abc import Sequence

import jax
import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.graphs import GraphWriter

from shardcall_core.call_error import CallError
from shardcall_core.graphs.graph import Constant, Graph, Value
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.analysis import bytes_by_step, collectives
from shardcall_server.compilation.program import build_mesh
from shardcall_server.kernels.graphs import region_programs
from shardcall_server.kernels.graphs.regions import pieces_of
from shardcall_server.kernels.graphs.step_scopes import steps_of

GRAPH = KERNELS["graph"]


def bounds_of(slices: Sequence[slice], shape: Sequence[int]) -> tuple[Constant, dict[str, tuple[int, ...]]]:
    """The starts of slices, and their sizes and steps."""
    bounds = [item.indices(n) for item, n in zip(slices, shape, strict=True)]
    sizes = tuple(len(range(*bound)) for bound in bounds)
    starts = Constant.of(np.array([start for start, _, _ in bounds], np.int64))
    return starts, {"sizes": sizes, "steps": tuple(step for _, _, step in bounds)}


def slice_of(write: GraphWriter, x: Value, slices: Sequence[slice], shape: Sequence[int]) -> Value:
    """A slice with a start, a stop and a step for each axis."""
    starts, how = bounds_of(slices, shape)
    return write("getitem", x, starts, **how)


def assigned(write: GraphWriter, x: Value, values: Value, slices: Sequence[slice], shape: Sequence[int]) -> Value:
    """An array with values in a slice."""
    starts, how = bounds_of(slices, shape)
    return write("setitem", x, values, starts, **how)


def smoothed(write: GraphWriter, x: Value, rows: int, columns: int) -> Value:
    """An array with the means of its neighbors along the first axis in its interior."""
    shape = (rows, columns)
    middle, below, above = (slice_of(write, x, [slice(1 + k, rows - 1 + k), slice(None)], shape) for k in (0, -1, 1))
    mean = write("multiply", write("add", write("add", below, above), middle), Constant.of(np.float64(0.25)))
    return assigned(write, x, mean, [slice(1, -1), slice(None)], shape)


def test_slices_of_one_array_share_an_exchange(run):
    write, rows = GraphWriter(), 96
    value = write.x(0)
    for _ in range(3):
        value = smoothed(write, value, rows, 5)
    program = run.program(
        GRAPH, ArrayType((rows, 5), np.dtype("f8")), graph=write.graph(value), mesh={"x": 8}, in_specs=[("x", None)]
    )
    (permutes,) = collectives(program.compiled.as_text())
    assert (permutes.operation, permutes.count) == ("collective-permute", 2)
    assert permutes.bytes_per_device == 2 * 3 * 5 * 8  # three rows from each neighbor


def test_equal_regions_are_traced_once_with_the_names_of_their_steps(run, monkeypatch):
    write, rows, traced = GraphWriter(), 24, []
    monkeypatch.setattr(region_programs, "pieces_of", lambda *args: traced.append(args) or pieces_of(*args))
    value, (x, y) = write.x(0), np.random.default_rng(5).normal(size=(2, rows, 8))
    for _ in range(6):
        value = smoothed(write, value, rows, 8)
    graph = write.graph(write("multiply", value, write.x(1)))
    how = {"graph": graph, "mesh": {"x": 8}, "in_specs": [("x", None), (None, "x")]}
    steps = bytes_by_step(run.program(GRAPH, x, y, **how).compiled.as_text())
    assert len(traced) == 3  # the first one, the last one, and those between them
    assert {step // 7 for (step,) in steps} == {*range(6 + 1)}  # the last one takes y in another layout
    assert steps_of("jit(composed)/step4/jit(plus2)/shard_map/plus3/ppermute") == (7,)
    result = run(GRAPH, x, y, **how)
    for _ in range(6):
        x[1:-1] = (x[:-2] + x[2:] + x[1:-1]) * 0.25
    assert np.allclose(result, x * y)


def test_slices_of_an_axis_that_is_not_sharded_send_nothing(run):
    write = GraphWriter()
    value = smoothed(write, write.x(0), 96, 16)
    program = run.program(
        GRAPH, ArrayType((96, 16), np.dtype("f8")), graph=write.graph(value), mesh={"x": 8}, in_specs=[(None, "x")]
    )
    assert collectives(program.compiled.as_text()) == []


def test_transposes_that_products_read_through_are_in_no_region(run):
    write, rows = GraphWriter(), 24
    x, y = np.random.default_rng(3).normal(size=(2, rows, 5))
    inner = slice_of(write, write.x(0), [slice(1, -1), slice(None)], x.shape)
    behind = slice_of(write, write.x(1), [slice(2, None), slice(None)], y.shape)
    graph = write.graph(write("matmul", write("transpose", inner), behind))
    result = run(GRAPH, x, y, graph=graph, mesh={"x": 8}, in_specs=[("x", None)] * 2, padding=float("nan"))
    assert np.allclose(result, x[1:-1].T @ y[2:], rtol=1e-12)


@pytest.mark.parametrize(("indices", "refused"), [((99, 0), 7), ((0, 99), 8)])
def test_refusals_name_their_node_whatever_the_sequence_of_the_steps(run, indices, refused):
    write, rows = GraphWriter(), 64
    x, y = np.random.default_rng(4).normal(size=(2, rows, 4))

    def sum_of_pairs(value: Value, count: int) -> Value:
        below, above = (slice_of(write, value, [slice(k, count - 1 + k), slice(None)], (count, 4)) for k in (0, 1))
        return write("add", below, above)

    rolled = write("roll", sum_of_pairs(write.x(0), rows), shift=(1,), axis=(0,))
    row = write("take", sum_of_pairs(rolled, rows - 1), write.x(2), axis=0)
    graph, inputs = write.call([row, write("take", write.x(1), write.x(3), axis=0)], [x, y, *map(np.int64, indices)])
    specs = [("x", None) if array.ndim else None for array in inputs]
    assert [i for i, node in enumerate(graph.nodes) if node.kernel == "take"] == [7, 8]
    with pytest.raises(CallError, match=rf"^node {refused}, take: "):
        run(GRAPH, *inputs, graph=graph, mesh={"x": 8}, in_specs=specs)


def column_sweep(columns: int) -> Graph:
    """A loop that adds to every column the half of the one before it."""
    body = GraphWriter()
    x, k = body.x(0), body.x(1)
    before = body("take", x, body("subtract", k, Constant.of(np.int64(1))), axis=1)
    half = body("multiply", before, Constant.of(np.float64(0.5)))
    total = body("add", body("take", x, k, axis=1), half)
    updated = body("put_at", x, total, k, axes=(1,), position=0, mode="set")
    graph, used = body.call([updated, body("add", k, Constant.of(np.int64(1)))])
    write = GraphWriter()
    carried = tuple(used.index(i) for i in (0, 1))
    inputs = [write.x(i) for i in used]
    return write.call([write("graph", *inputs, graph=graph, carried=carried, count=columns - 1)])[0]


@pytest.mark.parametrize("devices", [1, 8])
def test_a_sweep_writes_columns_where_they_are(run, devices):
    x = np.random.default_rng(2).normal(size=(64, 4100))
    graph = column_sweep(7)
    operands = [x[:, :7], np.int64(1)]
    how = {"mesh": {"x": devices}, "in_specs": [("x", None), None]}
    expected = x[:, :7].copy()
    for k in range(1, 7):
        expected[:, k] += 0.5 * expected[:, k - 1]
    assert np.allclose(run(GRAPH, *operands, graph=graph, **how), expected, rtol=1e-14)
    text = run.program(GRAPH, *operands, graph=graph, **how).compiled.as_text()
    assert collectives(text) == []
    (body,) = [part for part in text.split("\n\n") if " dynamic-update-slice(" in part]
    block = f"f64[{64 // devices},7]"
    assert f"= {block}{{1,0}} copy(" not in body
    assert f"= {block}{{1,0}} select(" not in body


@pytest.mark.parametrize("devices", [1, 8])
def test_what_a_replaced_value_refuses_is_refused(run, devices):
    write, rows = GraphWriter(), 64
    x = np.random.default_rng(6).normal(size=(rows, 4))
    inner = [slice(1, -1), slice(None)]
    first = assigned(write, write.x(0), write("take", write.x(0), write.x(1), axis=0), inner, x.shape)
    graph = write.graph(assigned(write, first, Constant.of(np.float64(0.5)), inner, x.shape))
    how = {"graph": graph, "mesh": {"x": devices}, "in_specs": [("x", None), None]}
    expected = x.copy()
    expected[1:-1] = 0.5
    assert np.array_equal(run(GRAPH, x, np.int64(3), **how), expected)
    with pytest.raises(CallError, match=r"^node 0, take: "):
        run(GRAPH, x, np.int64(99), **how)


def test_a_program_of_one_device_is_traced_without_maps_of_devices(run):
    write = GraphWriter()
    how = {"graph": write.graph(smoothed(write, write.x(0), 96, 5)), "in_specs": [("x", None)]}
    resolved = run.resolve(GRAPH, ArrayType((96, 5), np.dtype("f8")), **how)
    mesh = build_mesh(resolved.problem.mesh, resolved.device_ids)
    traced = jax.make_jaxpr(resolved.strategy.build(resolved.problem, mesh))(np.zeros((96, 5)))
    assert "shard_map" not in str(traced)
    assert "sharding_constraint" not in str(traced)

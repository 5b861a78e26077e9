"""Programs of slices at every offset: regions give NumPy's results on meshes that divide no length."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import numpy as np
import pytest
from kernels.graphs import GraphWriter

from shardcall_core.call_error import CallError
from shardcall_core.graphs.graph import Constant, Graph, Value
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.analysis import collectives
from shardcall_server.compilation.program import build_mesh
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
GRAPH = KERNELS["graph"]
MESHES = [
    {"mesh": {"x": 1}, "in_specs": [("x", None)]},
    {"mesh": {"x": 2}, "in_specs": [("x", None)]},
    {"mesh": {"x": 3}, "in_specs": [("x", None)]},
    {"mesh": {"x": 8}, "in_specs": [("x", None)]},
    {"mesh": {"x": 8}, "in_specs": [(None, "x")]},
    {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]},
    {"mesh": {"a": 2, "b": 3}, "in_specs": [(("b", "a"), None)]},
]
SHORT, LONG = 2 * len(MESHES), 400  # each mesh twice, once exact


def slice_of(write: GraphWriter, x: Value, slices: Sequence[slice], shape: Sequence[int]) -> Value:
    """A slice with a start, a stop and a step for each axis."""
    bounds = [item.indices(n) for item, n in zip(slices, shape, strict=True)]
    sizes = tuple(len(range(*bound)) for bound in bounds)
    starts = Constant.of(np.array([start for start, _, _ in bounds], np.int64))
    return write("getitem", x, starts, sizes=sizes, steps=tuple(step for _, _, step in bounds))


def assigned(write: GraphWriter, x: Value, values: Value, slices: Sequence[slice], shape: Sequence[int]) -> Value:
    """An array with values in a slice."""
    bounds = [item.indices(n) for item, n in zip(slices, shape, strict=True)]
    sizes = tuple(len(range(*bound)) for bound in bounds)
    starts = Constant.of(np.array([start for start, _, _ in bounds], np.int64))
    return write("setitem", x, values, starts, sizes=sizes, steps=tuple(step for _, _, step in bounds))


@dataclass
class RandomStencils:
    """A random program of slices, writes and elementwise functions of two arrays, and what NumPy makes of it."""

    seed: int
    write: GraphWriter = field(default_factory=GraphWriter)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        rows, columns = self.chance.randint(1, 60), self.chance.randint(1, 20)
        values = np.random.default_rng(self.seed).normal(size=(2, rows, columns))
        self.inputs = list(values)
        self.values: list[tuple[Value, np.ndarray]] = [(self.write.x(i), x) for i, x in enumerate(values)]
        for _ in range(self.chance.randint(3, 14)):
            self.values.append(self.new_value())
        self.results = self.chance.sample(self.values[2:], min(3, len(self.values) - 2))

    def any_slice(self, x: tuple[Value, np.ndarray], sizes: Sequence[int] | None = None) -> tuple[Value, np.ndarray]:
        """A slice of a size, at a random offset."""
        value, array = x
        if sizes is None:
            sizes = [max(1, n - self.chance.choice([0, 0, 1, 2, 3, n // 2])) for n in array.shape]
        if tuple(sizes) == array.shape:
            return x
        starts = [self.chance.randint(0, n - size) for n, size in zip(array.shape, sizes, strict=True)]
        slices = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
        return slice_of(self.write, value, slices, array.shape), array[tuple(slices)]

    def pair(self) -> tuple[tuple[Value, np.ndarray], tuple[Value, np.ndarray]]:
        """Slices of two values that have one shape."""
        x, y = self.chance.choice(self.values), self.chance.choice(self.values)
        sizes = [min(n, m) for n, m in zip(x[1].shape, y[1].shape, strict=True)]
        return self.any_slice(x, sizes), self.any_slice(y, sizes)

    def new_value(self) -> tuple[Value, np.ndarray]:
        """A value that a random call makes of others."""
        write, draw = self.write, self.chance.random()
        if draw < 0.5:
            (x, a), (y, b) = self.pair()
            name = self.chance.choice(["add", "subtract", "multiply", "maximum"])
            return write(name, x, y), getattr(np, name)(a, b)
        if draw < 0.6:
            (x, a), (y, b) = self.pair()
            return write("where", write("less", x, y), x, Constant.of(np.float64(0.5))), np.where(a < b, a, 0.5)
        if draw < 0.7:
            return self.any_slice(self.chance.choice(self.values))
        if draw < 0.9:
            x, y = self.chance.choice(self.values), self.chance.choice(self.values)
            sizes = [min(n, m) for n, m in zip(x[1].shape, y[1].shape, strict=True)]
            values, of_slice = self.any_slice(y, [max(1, n - self.chance.choice([0, 1, 2])) for n in sizes])
            starts = [self.chance.randint(0, n - m) for n, m in zip(x[1].shape, of_slice.shape, strict=True)]
            slices = tuple(slice(start, start + n) for start, n in zip(starts, of_slice.shape, strict=True))
            result = x[1].copy()
            result[slices] = of_slice
            return assigned(write, x[0], values, slices, result.shape), result
        x, array = self.chance.choice(self.values)
        if draw < 0.95:
            axis, step = self.chance.randint(0, 1), self.chance.choice([2, -1])
            slices = [slice(None), slice(None)]
            slices[axis] = slice(None, None, step)
            return slice_of(write, x, slices, array.shape), array[tuple(slices)]
        axis = self.chance.randint(0, 1)
        return write("flip", x, axis=axis), np.flip(array, axis)


@pytest.mark.parametrize(
    ("seed", "exact"),
    [
        pytest.param(i, exact, marks=() if i < SHORT and exact == (i // len(MESHES) == 0) else pytest.mark.long)
        for i in range(LONG)
        for exact in (True, False)
    ],
)
def test_random_programs_of_slices_are_numpys(run, seed, exact):
    drawn = RandomStencils(seed)
    how = MESHES[seed % len(MESHES)]
    graph, inputs = drawn.write.call([value for value, _ in drawn.results], drawn.inputs)
    specs = how["in_specs"] * len(inputs)
    results = run(GRAPH, *inputs, graph=graph, exact=exact, mesh=how["mesh"], in_specs=specs, padding=float("nan"))
    for result, (_, expected) in zip(results if isinstance(results, tuple) else [results], drawn.results, strict=True):
        assert result.shape == expected.shape
        assert np.array_equal(result, expected) if exact else np.allclose(result, expected, rtol=1e-12, atol=1e-12)


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


def test_slices_of_an_axis_that_is_not_sharded_send_nothing(run):
    write = GraphWriter()
    value = smoothed(write, write.x(0), 96, 16)
    program = run.program(
        GRAPH, ArrayType((96, 16), np.dtype("f8")), graph=write.graph(value), mesh={"x": 8}, in_specs=[(None, "x")]
    )
    assert collectives(program.compiled.as_text()) == []


def test_chains_of_slices_are_divided_before_their_margins_are_blocks(run):
    write, rows = GraphWriter(), 40
    x, value = np.random.default_rng(1).normal(size=(rows, 3)), write.x(0)
    expected = x
    for _ in range(12):
        value = smoothed(write, value, rows, 3)
        inner = (expected[:-2] + expected[2:] + expected[1:-1]) * 0.25
        expected = np.concatenate([expected[:1], inner, expected[-1:]])
    graph = write.graph(value)
    result = run(GRAPH, x, graph=graph, exact=True, mesh={"x": 8}, in_specs=[("x", None)], padding=float("nan"))
    assert np.array_equal(result, expected)


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
    results = [row, write("take", write.x(1), write.x(3), axis=0)]
    graph, inputs = write.call(results, [x, y, *map(np.int64, indices)])
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
    swept = write("graph", *inputs, graph=graph, carried=carried, count=columns - 1)
    return write.call([swept])[0]


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


def alternating_steps(write: GraphWriter, rows: int, steps: int) -> tuple[Value, Value]:
    """Two arrays, each of which gets the means of the other in its interior, in turn."""
    a = b = write.x(0)
    for _ in range(steps):
        below, above = (slice_of(write, a, [slice(k, rows - 2 + k)], [rows]) for k in (0, 2))
        mean = write("multiply", write("add", below, above), Constant.of(np.float64(0.5)))
        a, b = assigned(write, b, mean, [slice(1, -1)], [rows]), a
    return a, b


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("devices", [1, 8])
def test_writes_to_one_slice_take_the_array_before_them(run, devices, exact):
    write, rows = GraphWriter(), 800
    graph = write.graph(*alternating_steps(write, rows, 12))
    x = np.random.default_rng(5).normal(size=rows)
    how = {"graph": graph, "exact": exact, "mesh": {"x": devices}, "in_specs": [("x",)]}
    a = b = x
    for _ in range(12):
        a, b = np.concatenate([b[:1], (a[:-2] + a[2:]) * 0.5, b[-1:]]), a
    for result, expected in zip(run(GRAPH, x, **how), (a, b), strict=True):
        assert np.array_equal(result, expected) if exact else np.allclose(result, expected, rtol=1e-13)
    plan = GRAPH.plans(run.resolve(GRAPH, x, **how).problem)[0]
    assert {node.operands[0] for node in plan.nodes if node.kernel.name == "setitem"} == {Value(-1, 0)}


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
    value = smoothed(write, write.x(0), 96, 5)
    how = {"graph": write.graph(value), "in_specs": [("x", None)]}
    resolved = run.resolve(GRAPH, ArrayType((96, 5), np.dtype("f8")), **how)
    mesh = build_mesh(resolved.problem.mesh, resolved.device_ids)
    traced = jax.make_jaxpr(resolved.strategy.build(resolved.problem, mesh))(np.zeros((96, 5)))
    assert "shard_map" not in str(traced)
    assert "sharding_constraint" not in str(traced)

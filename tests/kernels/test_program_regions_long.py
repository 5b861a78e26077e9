"""The tests of `test_program_regions.py` that take long."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from kernels.graphs import GraphWriter
from kernels.test_program_regions import GRAPH, assigned, slice_of, smoothed

from shardcall_core.graphs.graph import Constant, Value

pytestmark = pytest.mark.long

MESHES = [
    {"mesh": {"x": 1}, "in_specs": [("x", None)]},
    {"mesh": {"x": 2}, "in_specs": [("x", None)]},
    {"mesh": {"x": 3}, "in_specs": [("x", None)]},
    {"mesh": {"x": 8}, "in_specs": [("x", None)]},
    {"mesh": {"x": 8}, "in_specs": [(None, "x")]},
    {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]},
    {"mesh": {"a": 2, "b": 3}, "in_specs": [(("b", "a"), None)]},
]


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


@pytest.mark.parametrize("seed", range(400))
@pytest.mark.parametrize("exact", [True, False])
def test_random_programs_of_slices_are_numpys(run, seed, exact):
    drawn = RandomStencils(seed)
    how = MESHES[seed % len(MESHES)]
    graph, inputs = drawn.write.call([value for value, _ in drawn.results], drawn.inputs)
    specs = how["in_specs"] * len(inputs)
    results = run(GRAPH, *inputs, graph=graph, exact=exact, mesh=how["mesh"], in_specs=specs, padding=float("nan"))
    for result, (_, expected) in zip(results if isinstance(results, tuple) else [results], drawn.results, strict=True):
        assert result.shape == expected.shape
        assert np.array_equal(result, expected) if exact else np.allclose(result, expected, rtol=1e-12, atol=1e-12)


def test_chains_of_slices_are_divided_before_their_margins_are_blocks(run):
    write, rows = GraphWriter(), 40
    x, value = np.random.default_rng(1).normal(size=(rows, 3)), write.x(0)
    expected = x
    for _ in range(12):
        value = smoothed(write, value, rows, 3)
        expected = np.concatenate([expected[:1], (expected[:-2] + expected[2:] + expected[1:-1]) * 0.25, expected[-1:]])
    graph = write.graph(value)
    result = run(GRAPH, x, graph=graph, exact=True, mesh={"x": 8}, in_specs=[("x", None)], padding=float("nan"))
    assert np.array_equal(result, expected)


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

"""The tests of `test_program_regions.py` that take long."""

import random

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


def drawn(seed: int) -> tuple[GraphWriter, list[np.ndarray], list[tuple[Value, np.ndarray]]]:
    """A random program of slices, writes and functions of two arrays: its inputs, some values, and NumPy's."""
    chance, write = random.Random(seed), GraphWriter()
    inputs = [*np.random.default_rng(seed).normal(size=(2, chance.randint(1, 60), chance.randint(1, 20)))]
    values = [(write.x(i), x) for i, x in enumerate(inputs)]
    for _ in range(chance.randint(3, 14)):
        (x, a), (y, b) = chance.choice(values), chance.choice(values)
        sizes = [max(1, n - chance.choice((0, 0, 1, 2, 3))) for n in map(min, a.shape, b.shape)]
        of_a, of_b = (
            [slice(start := chance.randint(0, n - m), start + m) for n, m in zip(array.shape, sizes, strict=True)]
            for array in (a, b)
        )
        part, numpys = slice_of(write, x, of_a, a.shape), a[tuple(of_a)]
        if chance.random() < 0.3:
            result = b.copy()
            result[tuple(of_b)] = numpys
            values.append((assigned(write, y, part, of_b, b.shape), result))
        else:
            name = chance.choice(("add", "subtract", "multiply", "maximum"))
            other = slice_of(write, y, of_b, b.shape)
            values.append((write(name, part, other), getattr(np, name)(numpys, b[tuple(of_b)])))
    return write, inputs, chance.sample(values[2:], 3)


@pytest.mark.parametrize("seed", range(400))
@pytest.mark.parametrize("exact", [True, False])
def test_random_programs_of_slices_are_numpys(run, seed, exact):
    write, inputs, sampled = drawn(seed)
    graph, inputs = write.call([value for value, _ in sampled], inputs)
    how = MESHES[seed % len(MESHES)] | {"graph": graph, "exact": exact, "padding": float("nan")}
    how["in_specs"] = how["in_specs"] * len(inputs)
    for result, (_, expected) in zip(run(GRAPH, *inputs, **how), sampled, strict=True):
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

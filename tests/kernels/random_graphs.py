"""Random graphs of every family of kernels, in which each node has NumPy's function of its operands."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from kernels.graphs import GraphWriter

from shardcall_core.call_error import CallError
from shardcall_core.element_types import NAMED, is_float
from shardcall_core.graphs.graph import Value
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.library import kernels

KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in kernels()}
TYPES = ("float64", "float32", "int32", "int64", "int8", "uint8", "bool", "complex128", "bfloat16", "float16")
SHAPES = ((13, 9), (5, 3), (16, 8), (7, 7), (2, 3, 5), (11,), (1, 6), (0, 4))
MESHES: tuple[dict[str, int], ...] = ({"x": 8}, {"a": 4, "b": 2}, {"x": 3}, {"x": 1})
_MAX_ELEMENTS = 1 << 12
_UNARY = ("sin", "tanh", "absolute", "negative", "floor", "sign", "square", "arctan", "isfinite", "logical_not", "real")
_BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "hypot", "arctan2", "less", "not_equal", "logical_or")
_SMOOTH_UNARY = ("sin", "cos", "tanh", "arctan", "negative")
_SMOOTH_BINARY = ("add", "subtract", "multiply")
_REDUCTIONS = ("sum", "mean", "max", "min", "any", "all", "argmax", "argmin", "std")

Reference = Callable[..., Any]
Drawn = tuple[str, Sequence[Value | None], dict[str, Any], Reference]
"""A kernel, its operands, its parameters, and NumPy's function of the operands, which returns one array or several."""


class UnfitCallError(Exception):
    """A drawn call does not fit the existing arrays."""


class RandomGraph:
    """A random graph.

    Attributes:
        inputs: the arrays of its inputs.
        arrays: NumPy's arrays by value.
        references: for each node NumPy's function of its operands.
        mesh: the mesh that it runs on.
        in_specs: the specs of the inputs.

    Args:
        seed: the seed.
        is_smooth: True for a graph with derivatives, which finite differences approximate.
        max_nodes: the maximum number of nodes that are drawn, besides those that prepare operands.
    """

    def __init__(self, seed: int | str, *, is_smooth: bool = False, max_nodes: int = 30) -> None:
        self.chance = random.Random(seed)
        self.is_smooth = is_smooth
        self.write = GraphWriter()
        self.arrays: dict[Value, np.ndarray] = {}
        self.references: list[Reference] = []
        self.mesh = self.chance.choice(MESHES)
        shape = self.chance.choice(SHAPES[:-1] if is_smooth else SHAPES)
        names = ["float64"] * 2 if is_smooth else self.chance.sample(TYPES, 2)
        values = np.random.default_rng(self.chance.randrange(1 << 30))
        types = [(shape, names[0]), (shape, names[self.chance.randrange(2)]), (shape[-1:], names[0]), ((), names[0])]
        self.inputs = [_normal(values, *array_type) for array_type in types]
        for i, array in enumerate(self.inputs):
            self.arrays[self.write.x(i)] = array
        self.in_specs = [self.spec(array.ndim) for array in self.inputs]
        families = SMOOTH if is_smooth else FAMILIES
        for _ in range(self.chance.randint(1, max_nodes)):
            self._draw(self.chance.choice(families))

    def pick(self, *, ndim: int | None = None, min_ndim: int = 0) -> Value:
        """Draws a value with a number of axes, or a minimum number; later values more often.

        Raises:
            UnfitCallError: there is no such value.
        """
        values = [v for v, a in self.arrays.items() if a.ndim >= min_ndim and ndim in (None, a.ndim)]
        if not values:
            raise UnfitCallError
        return self.chance.choice(values[-6:] if self.chance.random() < 0.6 else values)

    def axis(self, value: Value) -> int:
        """Draws an axis of an array."""
        ndim = self.arrays[value].ndim
        return self.chance.randrange(-ndim, ndim)

    def spec(self, ndim: int) -> tuple[str | None, ...] | None:
        """Draws the spec of an array; None for the default."""
        if self.chance.random() < 0.2:
            return None
        axes: list[str | None] = [*self.mesh, *[None] * ndim]
        return tuple(self.chance.sample(axes, ndim))

    def add(self, drawn: Drawn) -> Value:
        """Adds a node, if NumPy and the kernel take its operands; returns its first result.

        Raises:
            UnfitCallError: NumPy or the kernel does not take them.
        """
        name, operands, parameters, reference = drawn
        arrays = [None if value is None else self.arrays[value] for value in operands]
        operand_types = [None if a is None else ArrayType(a.shape, a.dtype) for a in arrays]
        kernel = KERNELS.get(name)
        types: Sequence[ArrayType] | None = None
        if kernel is not None:
            operand_types += [None] * (len(kernel.operand_infos(len(operand_types))) - len(operand_types))
            arguments = {p.name: parameters.get(p.name, p.default) for p in kernel.parameters}
            try:
                types = kernel.validate(tuple(operand_types), arguments).results
            except CallError:
                raise UnfitCallError from None
        try:
            results = expected(reference, arrays, types)
        except (TypeError, ValueError):
            raise UnfitCallError from None
        if sum(array.size for array in results) > _MAX_ELEMENTS:
            raise UnfitCallError
        first = self.write(name, *operands, **parameters)
        if name in KERNELS and name != "graph" and self.chance.random() < 0.1 and operands[0] is not None:
            specs = self.spec(self.arrays[operands[0]].ndim)
            in_specs = specs and (tuple(() if axis is None else (axis,) for axis in specs),)
            self.write.nodes[-1] = self.write.nodes[-1]._replace(in_specs=in_specs or ())
        self.references.append(reference)
        for i, array in enumerate(results):
            self.arrays[Value(first.node, i)] = array
        return first

    def _draw(self, family: Callable[[RandomGraph], Drawn]) -> None:
        for _ in range(20):
            try:
                self.add(family(self))
            except UnfitCallError:
                family = self.chance.choice(SMOOTH if self.is_smooth else FAMILIES)
            else:
                return


def expected(
    reference: Reference, arrays: Sequence[np.ndarray | None], types: Sequence[ArrayType] | None
) -> list[np.ndarray]:
    """Returns NumPy's arrays; those of narrow types are computed in float64."""
    narrow = {a.dtype for a in arrays if a is not None and is_float(a.dtype) and a.dtype.itemsize < 4}
    if narrow:
        arrays = [a.astype(np.float64) if a is not None and a.dtype in narrow else a for a in arrays]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        returned = reference(*arrays)
    results = [np.asarray(result) for result in (returned if isinstance(returned, tuple) else (returned,))]
    if narrow:
        dtypes = [array_type.dtype for array_type in types] if types is not None else [narrow.pop()] * len(results)
        with np.errstate(all="ignore"):
            results = [result.astype(dtype) for result, dtype in zip(results, dtypes, strict=False)]
    return results


def assert_near(
    actual: np.ndarray, number: int, reference: Reference, operands: Sequence[np.ndarray | None], message: str
) -> None:
    """Compares a result of a node with that of NumPy's function of its operands, as the mesh computed them."""
    reference_result = expected(reference, operands, [ArrayType(actual.shape, actual.dtype)] * (number + 1))[number]
    assert (actual.shape, actual.dtype) == (reference_result.shape, reference_result.dtype), message
    if actual.dtype.kind not in "fc" and not is_float(actual.dtype):
        assert np.array_equal(actual, reference_result), message
        return
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        arrays = [a for a in (*operands, reference_result) if a is not None]
        sizes = [float(np.max(abs(a.astype(np.complex128)), initial=1)) for a in arrays]
    scale = max(sizes) ** 2 * max(64, *(a.size for a in operands if a is not None))
    tolerance = float(ml_dtypes.finfo(actual.dtype).eps) * scale
    if np.isfinite(tolerance) and tolerance < 1e30:
        assert np.allclose(
            actual.astype(wide), reference_result.astype(wide), rtol=1e-2, atol=tolerance, equal_nan=True
        ), message


def _normal(values: np.random.Generator, shape: tuple[int, ...], name: str) -> np.ndarray:
    dtype = NAMED[name]
    if dtype == np.bool_:
        return values.random(shape) < 0.5
    if dtype.kind in "iu":
        return values.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
    array = values.normal(size=shape)
    return np.asarray(array + 1j * values.normal(size=shape) if dtype.kind == "c" else array).astype(dtype)


def _unary(graph: RandomGraph) -> Drawn:
    name = graph.chance.choice(_SMOOTH_UNARY if graph.is_smooth else _UNARY)
    return name, [graph.pick()], {}, getattr(np, name)


def _binary(graph: RandomGraph) -> Drawn:
    name = graph.chance.choice(_SMOOTH_BINARY if graph.is_smooth else _BINARY)
    return name, [graph.pick(), graph.pick()], {}, getattr(np, name)


def _selection(graph: RandomGraph) -> Drawn:
    x, y = graph.pick(), graph.pick()
    mask = graph.add(("less", [graph.write.x(0), graph.write.x(3)], {}, np.less))
    return "where", [mask, x, y], {}, np.where


def _reduction(graph: RandomGraph) -> Drawn:
    name = graph.chance.choice(("sum", "mean") if graph.is_smooth else _REDUCTIONS)
    x = graph.pick(min_ndim=1)
    how = {"axis": graph.axis(x), "keepdims": graph.chance.random() < 0.5}
    return name, [x], how, lambda x: getattr(np, name)(x, **how)


def _move(graph: RandomGraph) -> Drawn:
    x = graph.pick(min_ndim=1)
    axis, shift = graph.axis(x), graph.chance.randint(-9, 9)
    moves: list[tuple[str, dict[str, Any], Reference]] = [
        ("roll", {"shift": shift, "axis": axis}, lambda x: np.roll(x, shift, axis)),
        ("flip", {"axis": axis}, lambda x: np.flip(x, axis)),
        ("transpose", {}, np.transpose),
        ("reshape", {"shape": -1}, lambda x: x.reshape(-1)),
        ("expand_dims", {"axis": axis}, lambda x: np.expand_dims(x, axis)),
        ("repeat", {"repeats": 2, "axis": axis}, lambda x: np.repeat(x, 2, axis)),
        ("tile", {"reps": 2}, lambda x: np.tile(x, 2)),
        ("diff", {"axis": axis}, lambda x: np.diff(x, axis=axis)),
        ("tril", {"k": 1}, lambda x: np.tril(x, 1)),
        ("copy", {}, np.copy),
        ("reshard", {}, np.copy),
    ]
    name, how, reference = graph.chance.choice(moves)
    return name, [x], how, reference


def _shift(graph: RandomGraph) -> Drawn:
    x = graph.pick(min_ndim=1)
    axis, n = graph.axis(x), graph.chance.randint(1, 3)

    def reference(x: np.ndarray) -> np.ndarray:
        moved = np.roll(x, n, axis)
        np.moveaxis(moved, axis, 0)[:n] = 0
        return moved

    return "shift", [x], {"shift": n, "axis": axis}, reference


def _join(graph: RandomGraph) -> Drawn:
    x = graph.pick(min_ndim=1)
    same = [v for v, a in graph.arrays.items() if (a.shape, a.dtype) == (graph.arrays[x].shape, graph.arrays[x].dtype)]
    axis, others = graph.axis(x), [x, graph.chance.choice(same)]
    if graph.chance.random() < 0.5:
        return "stack", others, {"axis": axis}, lambda *arrays: np.stack(arrays, axis)
    return "concatenate", others, {"axis": axis}, lambda *arrays: np.concatenate(arrays, axis)


def _scan_sum(graph: RandomGraph) -> Drawn:
    x = graph.pick(min_ndim=1)
    axis = graph.axis(x)
    return "cumsum", [x], {"axis": axis}, lambda x: np.cumsum(x, axis)


def _sorted(graph: RandomGraph) -> Drawn:
    x = graph.pick(min_ndim=1)
    axis = graph.axis(x)
    if graph.chance.random() < 0.5:
        return "sort", [x], {"axis": axis}, lambda x: np.sort(x, axis, kind="stable")
    return "argsort", [x], {"axis": axis}, lambda x: np.argsort(x, axis, kind="stable")


def _product(graph: RandomGraph) -> Drawn:
    x = graph.pick(min_ndim=1)
    lhs = graph.arrays[x]
    fit = [v for v, a in graph.arrays.items() if a.ndim == 2 and a.shape[-1] == lhs.shape[-1]]
    if lhs.ndim > 2 or lhs.size == 0 or not fit:
        raise UnfitCallError
    y = graph.chance.choice(fit)
    return "matmul", [x, y], {"transpose_rhs": True}, lambda x, y: x @ y.T


def _stencil(graph: RandomGraph) -> Drawn:
    x = graph.pick(ndim=2)
    if not is_float(graph.arrays[x].dtype) or min(graph.arrays[x].shape) < 2:
        raise UnfitCallError

    def laplacian(x: np.ndarray) -> np.ndarray:
        return sum(np.roll(x, s, a) for a in (0, 1) for s in (1, -1)) - 4 * x

    if graph.chance.random() < 0.5:
        return "laplacian", [x], {}, laplacian
    return "gradient", [x], {"axis": 0}, lambda x: np.gradient(x, axis=0)


def _transform(graph: RandomGraph) -> Drawn:
    x = graph.pick(min_ndim=1)
    if graph.arrays[x].dtype.name not in ("float64", "complex128"):
        raise UnfitCallError
    axis = graph.axis(x)
    name = graph.chance.choice(("fft", "ifft"))
    return name, [x], {"axis": axis}, lambda x: getattr(np.fft, name)(x, axis=axis)


def _factors(graph: RandomGraph) -> Drawn:
    x = graph.pick(ndim=2)
    if graph.arrays[x].dtype != np.float64 or not np.isfinite(graph.arrays[x]).all() or graph.arrays[x].size == 0:
        raise UnfitCallError
    return "svdvals", [x], {}, np.linalg.svdvals


def _step(body: GraphWriter, chance: random.Random, u: Value, c: Value, dtype: np.dtype) -> tuple[Value, Reference]:
    """Adds a function of two arrays to a body, whose result has the type of the first."""
    steps: list[tuple[Value, Reference]] = [
        (body("roll", u, shift=1, axis=0), lambda u, c: np.roll(u, 1, 0)),
        (body("add", u, c), np.add),
    ]
    if dtype.kind == "f":
        steps += [(body("tanh", body("subtract", c, u)), lambda u, c: np.tanh(c - u))]
    return chance.choice(steps)


def _pair(graph: RandomGraph) -> tuple[Value, Value]:
    """Draws an array with at least one axis, and another of the same type."""
    u = graph.pick(min_ndim=1)
    array = graph.arrays[u]
    if array.size == 0:
        raise UnfitCallError
    return u, graph.chance.choice(
        [v for v, a in graph.arrays.items() if (a.shape, a.dtype) == (array.shape, array.dtype)]
    )


def _loop(graph: RandomGraph) -> Drawn:
    u, c = _pair(graph)
    body, count = GraphWriter(), graph.chance.randint(1, 4)
    result, step = _step(body, graph.chance, body.x(0), body.x(1), graph.arrays[u].dtype)
    body_graph, used = body.call([result])
    how = {"graph": body_graph, "carried": (used.index(0),), "count": count}

    def reference(*arrays: np.ndarray) -> np.ndarray:
        named = dict(zip(used, arrays, strict=True))
        state = named[0]
        for _ in range(count):
            state = step(state, named.get(1))
        return state

    return "graph", [(u, c)[i] for i in used], how, reference


def _scan(graph: RandomGraph) -> Drawn:
    xs, _ = _pair(graph)
    array = graph.arrays[xs]
    if array.ndim < 2:
        raise UnfitCallError
    name = "max" if array.dtype.kind in "iub" or not graph.is_smooth else "sum"
    first = graph.add((name, [xs], {"axis": 0}, lambda x: getattr(np, name)(x, axis=0)))
    if graph.arrays[first].dtype != array.dtype:
        raise UnfitCallError
    reverse, body = graph.chance.random() < 0.5, GraphWriter()
    total = body("add", body.x(0), body.x(1))
    body_graph, used = body.call([total, body("negative", body("add", total, total))])
    how = {"graph": body_graph, "carried": (used.index(0), -1), "scanned": (used.index(1),), "length": len(array)}

    def reference(*arrays: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        named = dict(zip(used, arrays, strict=True))
        total, rows = named[0], np.empty_like(named[1])
        for i in reversed(range(len(rows))) if reverse else range(len(rows)):
            total = total + named[1][i]
            rows[i] = -(total + total)
        return total, rows

    return "scan", [(first, xs)[i] for i in used], {**how, "reverse": reverse}, reference


def _branch(graph: RandomGraph) -> Drawn:
    u, c = _pair(graph)
    mask = graph.add(("less", [graph.write.x(0), graph.write.x(3)], {}, np.less))
    flag = graph.add(("any", [mask], {}, np.any))
    steps, how = [], {}
    for name in ("then", "otherwise"):
        body = GraphWriter()
        result, step = _step(body, graph.chance, body.x(0), body.x(1), graph.arrays[u].dtype)
        branch, used = body.call([result])
        how |= {name: branch, f"{name}_inputs": tuple(used)}
        steps.append(step)
    then, otherwise = steps
    return "cond", [flag, u, c], how, lambda flag, u, c: then(u, c) if flag else otherwise(u, c)


FAMILIES = (
    *(_unary, _unary, _binary, _binary, _binary, _selection, _reduction, _move, _move, _shift, _join),
    *(_scan_sum, _sorted, _product, _stencil, _transform, _factors, _loop, _scan, _branch),
)
SMOOTH = (
    *(_unary, _unary, _binary, _binary, _selection, _reduction, _move, _move, _shift, _join),
    *(_scan_sum, _product, _stencil, _loop, _scan, _branch),
)

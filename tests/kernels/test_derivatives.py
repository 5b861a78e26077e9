"""Derivatives of every kernel, by every strategy and in several layouts, are those of finite differences."""

from functools import cache, lru_cache

import numpy as np
import pytest
from kernels.conftest import KERNELS
from kernels.derivative_cases import CASES, SYMMETRIC
from kernels.graphs import GraphWriter

from shardcall_core.call_error import CallError, Reason
from shardcall_core.graphs.graph import Value
from shardcall_core.layouts.layout import ArrayType

GRAPH = KERNELS["graph"]
STEP = 1e-5
RANDOM = np.random.default_rng(3)
MESHES = [
    ({"x": 8}, ("x",)),
    ({"a": 4, "b": 2}, ("a", "b")),
    ({"x": 1}, ()),
    ({"x": 3}, (None, "x")),
    ({"a": 4, "b": 2}, ("a",)),
]
SHORT = ("log1p", "maximum", "max", "prod", "matmul", "sort", "getitem", "copy", "laplacian")


class Case:
    """A call as a graph with one result, a weighted sum of the call's results."""

    def __init__(self, name, number):
        operands, parameters = CASES[name][number]
        self.name, self.parameters = name, parameters
        self.operands = [None if x is None else np.asarray(x) for x in operands]
        self.present = [i for i, x in enumerate(self.operands) if x is not None]
        self.types = [None if x is None else ArrayType(x.shape, x.dtype) for x in self.operands]
        resolved = KERNELS[name].validate(
            (*self.types, *[None] * (len(KERNELS[name].operand_infos(len(self.types))) - len(self.types))),
            {p.name: parameters.get(p.name, p.default) for p in KERNELS[name].parameters},
        )
        random = np.random.default_rng(1)
        self.results = resolved.results
        self.weights = [random.normal(size=result.shape) for result in self.results]
        self.wrt = [i for i in self.present if self.operands[i].dtype == np.float64]
        self.inputs = [*(self.operands[i] for i in self.present), *self.weights]

    def graph(self, strategy="", specs=()):
        """The graph, and the operands in the sequence of its inputs, as indices of `inputs`."""
        write = GraphWriter()
        operands = [None if x is None else write.x(self.present.index(i)) for i, x in enumerate(self.operands)]
        first = write(self.name, *operands, **self.parameters)
        write.nodes[-1] = write.nodes[-1]._replace(strategy=strategy, in_specs=specs)
        total = None
        for i in range(len(self.results)):
            product = write(
                "sum", write("multiply", write("real", Value(first.node, i)), write.x(len(self.present) + i))
            )
            total = product if total is None else write("add", total, product)
        return write.call([total])

    def numeric(self, run):
        """The derivative by finite differences, of the kernel on one device."""
        node, weights = KERNELS[self.name], self.weights

        def value(operands):
            results = run(node, *operands, mesh={"x": 1}, **self.parameters)
            results = results if isinstance(results, tuple) else (results,)
            return sum((w * r.real).sum() for w, r in zip(weights, results, strict=True))

        gradients = []
        for i in self.wrt:
            slope = np.zeros(self.operands[i].shape)
            for index in np.ndindex(slope.shape):
                ends = []
                for step in (STEP, -STEP):
                    x = self.operands[i].copy()
                    x[index] += step
                    if self.name in SYMMETRIC and index[-1] != index[-2]:
                        x[(*index[:-2], index[-1], index[-2])] += step
                    ends.append(value([*self.operands[:i], x, *self.operands[i + 1 :]]))
                slope[index] = (ends[0] - ends[1]) / (2 * STEP)
            gradients.append(slope)
        return gradients


@cache
def case_of(name, number):
    return Case(name, number)


@pytest.fixture(scope="session")
def numeric(run):
    return lru_cache(maxsize=None)(lambda name, number: case_of(name, number).numeric(run))


@pytest.mark.parametrize(
    ("name", "number", "mesh", "strategy"), [*((name, 0, 1, "") for name in SHORT), ("convolve", 1, 4, "")]
)
def test_gradients_are_those_of_finite_differences(run, numeric, name, number, mesh, strategy):
    case, (axes, entries) = case_of(name, number), MESHES[mesh]
    spec = tuple((e,) if e else () for e in entries)
    first = case.present[0] if case.operands[case.present[0]].ndim else case.present[-1]
    ndim = case.operands[first].ndim
    in_spec = None if len(spec) > ndim or not spec else (*spec, *((),) * (ndim - len(spec)))
    graph, used = case.graph(strategy, (*[None] * first, in_spec) if in_spec else ())
    wrt = tuple(used.index(case.present.index(i)) for i in case.wrt)
    inputs = [case.inputs[i] for i in used]
    try:
        _, *gradients = run(
            GRAPH, *inputs, graph=graph, transform="value_and_grad", wrt=wrt, mesh=axes, padding=float("nan")
        )
    except CallError as error:
        if error.reason != Reason.STRATEGY_UNSUPPORTED and "axis_name" not in error.message:
            raise
        pytest.skip(error.message)
    for i, slope, expected in zip(case.wrt, gradients, numeric(name, number), strict=True):
        both = np.swapaxes(slope, -1, -2) * (1 - np.eye(slope.shape[-1])) if name in SYMMETRIC else 0
        np.testing.assert_allclose(slope + both, expected, rtol=1e-6, atol=1e-6, err_msg=f"operand {i}")


def gradient(run, write, result, *inputs, wrt=(0,), mesh=1, **how):
    """The gradient of a value of a graph with respect to some inputs."""
    graph, used = write.call([result])
    axes, entries = MESHES[mesh]
    specs = [[entries] if i == 0 and len(entries) == x.ndim else [None] for i, x in enumerate(inputs)]
    options = {"transform": "value_and_grad", "wrt": tuple(map(used.index, wrt)), "padding": float("nan")}
    _, *gradients = run(
        GRAPH,
        *(inputs[i] for i in used),
        graph=graph,
        mesh=axes,
        in_specs=[spec for i in used for spec in specs[i]],
        **options,
        **how,
    )
    return gradients


X, ROW = np.abs(RANDOM.normal(size=(13, 9))) + 0.1, np.abs(RANDOM.normal(size=9)) + 0.1
BROADCAST = {
    "log": (lambda w: w("log", w("multiply", w.x(0), w.x(1))), 1 / X, 13 / ROW),
    "sqrt": (lambda w: w("sqrt", w("multiply", w.x(0), w.x(1))), np.sqrt(ROW / X) / 2, (np.sqrt(X / ROW) / 2).sum(0)),
    "divide": (lambda w: w("divide", w.x(1), w.x(0)), -ROW / X**2, (1 / X).sum(0)),
}


@pytest.mark.parametrize("name", BROADCAST)
def test_padding_is_no_part_of_the_gradient_of_a_broadcast_operand(run, name):
    compute, by_x, by_row = BROADCAST[name]
    write = GraphWriter()
    gradients = gradient(run, write, write("sum", compute(write)), X, ROW, wrt=(0, 1))
    np.testing.assert_allclose(gradients[0], by_x, rtol=1e-12)
    np.testing.assert_allclose(gradients[1], by_row, rtol=1e-12)


@pytest.mark.parametrize("transform", ["jvp", "vjp"])
def test_tangents_may_be_sharded_otherwise(run, transform):
    write = GraphWriter()
    graph = write.graph(write("sin", write.x(0)))
    x, dual = np.random.default_rng(3).normal(size=(2, 13, 9))
    how = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b"), (None, "a")], "padding": float("nan")}
    result = run(GRAPH, x, dual, graph=graph, transform=transform, wrt=(0,), **how)
    np.testing.assert_allclose(result[1] if transform == "jvp" else result, np.cos(x) * dual, rtol=1e-12)


def test_what_has_no_derivative_is_refused_by_name(refused):
    write = GraphWriter()
    x = ArrayType((4,), np.dtype("f8"))

    def message(*results, operands=(x,), **how):
        how = {"transform": "value_and_grad", "wrt": (0,), **how}
        return refused(GRAPH, *operands, graph=write.graph(*results), mesh={"x": 2}, **how).message

    total = write("sum", write.x(0))
    assert "nextafter: it cannot be differentiated" in message(write("sum", write("nextafter", write.x(0), write.x(0))))
    assert "the first result float64[4]" in message(write("sin", write.x(0)))
    assert "did you mean 'vjp'" in message(total, transform="vpj")
    assert "wrt=(1,)" in message(total, wrt=(1,))
    assert "wrt=()" in message(total, wrt=())
    assert "wrt=(0,)" in message(total, transform="checkpoint")
    assert "no derivatives" in message(total, operands=(ArrayType((4,), np.dtype("i4")),))
    assert "takes 2 operands and 1 came" in message(total, transform="jvp")
    assert "tangent or cotangent of float64[]" in message(total, transform="vjp", operands=(x, x))
    assert "8 bits" in message(
        write("sum", write("astype", write("astype", write.x(0), dtype="float8_e5m2"), dtype="float32"))
    )
    inner = write.graph(write("add", write.x(0), write.x(0)))
    loop = write("graph", write.x(0), write.x(1), graph=inner, carried=(0,))
    times = ArrayType((), np.dtype("i8"))
    assert "such as a while_loop; give fori_loop" in message(write("sum", loop), operands=(x, times))
    product = write("put_at", write.x(0), write.x(1), write.x(2), axes=(0,), mode="multiply")
    assert "mode 'multiply' has none" in message(write("sum", product), operands=(x, ArrayType((), x.dtype), times))
    many = write("sum", write("svd", write("reshape", write.x(0), shape=(2, 2))))
    assert "svd: it cannot be differentiated: the square factors" in message(many)


def test_what_does_not_depend_on_the_argument_may_be_anything(run):
    write = GraphWriter()
    rounded = write(
        "where", write("greater", write.x(0), write.x(1)), write.x(0), write("nextafter", write.x(1), write.x(1))
    )
    (slope,) = gradient(run, write, write("sum", rounded), np.array([1.0, -2, 3]), np.zeros(3))
    assert np.array_equal(slope, [1, 0, 1])


def test_a_strategy_whose_derivative_the_compiler_has_wrong_is_refused(run):
    write = GraphWriter()
    rolled = write("roll", write.x(0), shift=1, axis=0)
    write.nodes[-1] = write.nodes[-1]._replace(strategy="gspmd")
    with pytest.raises(CallError, match="node 0, roll: strategy 'gspmd' cannot be differentiated") as raised:
        gradient(run, write, write("sum", rolled), X)
    assert raised.value.reason == Reason.STRATEGY_UNSUPPORTED

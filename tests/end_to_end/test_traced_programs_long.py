"""The tests of `test_traced_programs.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_traced_programs import LARGE, U, calls, put, step

import shardcall as sc
from shardcall._src.traced.tracing import FunctionTracer
from shardcall_core.graphs.graph import Constant

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


def test_by_default_the_compiler_rounds_as_it_likes(client):
    u = put(client, LARGE)
    fast, exact = client.jit(step), client.jit(step, exact=True)
    expected = step(LARGE, 0.1)
    assert np.allclose(fast(u, 0.1).get(), expected, rtol=1e-13, atol=1e-13)
    assert np.array_equal(exact(u, 0.1).get(), expected)
    assert fast.trace(u, 0.1).stages[0].parameters.get("exact") is None
    assert fast.trace(u, 0.1).key != exact.trace(u, 0.1).key
    halved = client.jit(lambda u: u[1:-1] * 0.5)
    assert [item for node in halved.trace(u).form.nodes for item in node.operands][1] == Constant.of(np.array([1, 0]))
    assert not halved.plan(u).reproducible


def test_methods_of_the_client_are_traced(client):
    @client.jit
    def f(u):
        shifted = client.shift(u, 1, axis=0, fill=2.0).array
        by_row, by_column = client.gradient(u)
        return client.matmul(shifted, u.T, keep=True) + 1, by_row + by_column, client.submit("negative", u)

    product, slopes, negated = f(put(client, U))
    shifted = np.concatenate([np.full((1, 9), 2.0), U[:-1]])
    assert np.allclose(product.get(), shifted @ U.T + 1)
    assert np.allclose(slopes.get(), sum(np.gradient(U)))
    assert np.array_equal(negated.get(), -U)


def test_arrays_of_this_process_are_arguments(client):
    @client.jit
    def f(u, k):
        return u * k

    result = f(U, np.float32(3))
    assert isinstance(result, sc.RemoteArray)
    assert np.array_equal(result.get(), U * np.float32(3))
    assert f(U.astype("f4"), 3).dtype == np.float32


def test_results_have_the_specs_that_are_asked_for(client):
    def f(u):
        return u + 1, u.sum(axis=0)

    u = put(client, U)
    assert [item.spec for item in client.jit(f)(u)] == [sc.P("x", None), sc.P(None)]
    assert [item.spec for item in client.jit(f, out_specs=[(None, "x")])(u)] == [sc.P(None, "x"), sc.P(None)]


def test_static_arguments_are_those_of_the_caller(client):
    @client.jit(static=("power", 2), exact=True)
    def f(u, power, how):
        for _ in range(power):
            u = u * 2 if how == "double" else u + 1
        return u

    u = put(client, U)
    assert np.array_equal(f(u, 2, "double").get(), U * 4)
    assert np.array_equal(f(u, how="more", power=3).get(), U + 1 + 1 + 1)
    with pytest.raises(sc.TracingError, match="not hashable"):
        f(u, 1, ["double"])
    with pytest.raises(sc.InvalidParameterError, match=r"static has 'n', .* parameters u"):
        client.jit(lambda u: u, static="n")
    with pytest.raises(sc.TracingError, match=r"argument how of <lambda> .* is a str.*static"):
        client.jit(lambda u, how: u)(u, "double")


def test_a_function_is_traced_once_per_structure_and_type(client, monkeypatch):
    traces = []
    monkeypatch.setattr(FunctionTracer, "_traced", _counted(FunctionTracer._traced, traces))
    f = client.jit(lambda u, k: u * k["a"])
    u = put(client, U)
    for k in range(3):
        assert np.array_equal(f(u, {"a": float(k)}).get(), U * k)
    assert len(traces) == 1
    f(u, {"a": 1})
    f(put(client, LARGE), {"a": 1.0})
    f(put(client, U.astype("f4")), {"a": 1.0})
    assert len(traces) == 4
    gradient = client.grad(lambda u: (u * u).sum())
    assert np.array_equal(gradient(u).get(), gradient(u).get())
    assert len(traces) == 5


def _counted(function, recorded):
    def counted(*args, **kwargs):
        recorded.append(args)
        return function(*args, **kwargs)

    return counted


def test_clients_have_one_program_for_one_function(client, server):
    def f(u, k):
        return np.tanh(u) * k

    with sc.connect(server.address) as other:
        client.jit(f)(put(client, LARGE), 2.0).get()
        assert client.jit(f).trace(LARGE, 2.0).key == other.jit(f).trace(LARGE, 3.0).key
        assert other.jit(f).plan(sc.Array((64, 64), "f8"), 2.0).strategy == "composed"


def test_long_loops_are_one_call(client):
    result, kernels = calls(client, client.jit(lambda n: n + 1).repeat, 5, times=3000)
    assert kernels == ["graph"]
    assert int(result) == 3005
    inner = client.jit(lambda u, v: u + v)
    assert int(client.jit(lambda u: inner.repeat(u, 3, times=2))(1)) == 7


@pytest.mark.parametrize("count", [600, pytest.param(4096, marks=pytest.mark.long)])
def test_a_program_of_many_calls(client, count):
    def many(u, c):
        for _ in range(count // 2):
            u = u * 0.5 + c
        return u

    expected = many(U, 0.25)
    assert np.array_equal(client.jit(many)(put(client, U), 0.25).get(), expected)


@pytest.mark.parametrize("count", [100, pytest.param(1024, marks=pytest.mark.long)])
def test_a_program_of_many_arguments_and_results(client, count):
    arrays = [np.full(3, k) for k in range(count)]
    results = client.jit(lambda arrays: [x + x for x in arrays])(arrays)
    assert all(np.array_equal(result.get(), 2 * x) for result, x in zip(results, arrays, strict=True))


def test_limits_of_programs(client):
    rows = [np.full((13, 9), float(k)) for k in range(1100)]  # more bytes than a constant has

    def many(u, count):
        for k in range(count):
            u = np.sin(u) + rows[k]
        return u

    u, traced = put(client, U), client.jit(many, static="count")
    with pytest.raises(sc.TracingError, match=r"takes 1101 arrays and numbers.* at most 1,024 of each"):
        traced(u, 1100)
    rows = rows[:70]
    with pytest.raises(sc.TracingError, match=r"takes 71 arrays and numbers.* is transformed 64"):
        client.jit(client.checkpoint(lambda u: sum(rows, start=u)))(u)

    def loops(u):
        for k in range(41):
            u = client.xp.fori_loop(0, k + 2, lambda _, s: many_sines(s, 100), u)
        return u

    with pytest.raises(sc.TracingError, match=r"has 4141 calls of kernels, .* at most 4,096"):
        client.jit(loops)(u)
    with pytest.raises(sc.TracingError, match="more than 4096 calls"):
        client.jit(lambda u: many_sines(u, 5000))(u)
    with pytest.raises(sc.TracingError, match="returns no array"):
        client.jit(lambda u: None)(u)
    with pytest.raises(sc.TracingError, match="mesh= was given to sin"):
        client.jit(lambda u: client.xp.sin(u, mesh={"x": 2}))(u)


def many_sines(u, count):
    for _ in range(count):
        u = np.sin(u)
    return u


def test_two_clients_with_one_function_compile_it_once(client, server):
    step = client.jit(lambda u: np.tanh(u * 3.25).sum(axis=0) + 1)
    step(np.ones((13, 9))).get()
    before = client.usage().programs
    with sc.connect(server.address) as other:
        total = other.jit(lambda v: [np.sin(v), np.add(np.sum(np.tanh(np.multiply(v, 3.25)), 0), 1)][1])
        assert np.allclose(total(np.ones((13, 9))).get(), 13 * np.tanh(3.25) + 1)
    assert client.usage().programs == before


def test_parameters_that_are_equal_and_of_other_types_are_other_calls(client):
    u = client.put(np.arange(12.0).reshape(4, 3))
    assert np.array_equal(client.jit(lambda u: np.roll(u, 1, 0))(u).get(), np.roll(u.get(), 1, 0))
    with pytest.raises(sc.ShardcallError, match="True"):
        client.jit(lambda u: np.roll(u, True, 0))(u)

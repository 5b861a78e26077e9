"""Functions that run as one program: results, programs, limits, and errors that name the line of the function."""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from client_parts import sender_of

import shardcall as sc
from shardcall._src.traced.tracing import FunctionTracer
from shardcall_core.graphs.graph import Constant

U = np.random.default_rng(5).normal(size=(13, 9))
LARGE = np.random.default_rng(6).normal(size=(64, 64))


def put(client, array):
    return client.put(array, mesh={"x": 4}, spec=("x", None) if np.ndim(array) == 2 else None)


def calls(client, function, *args, **kwargs):
    """The calls that the server gets for a call of a function, by kernel."""
    recorded = []
    send, run = sender_of(client).send, client._run
    sender_of(client).send = lambda call, *rest, **how: recorded.append(call) or send(call, *rest, **how)
    client._run = lambda call, *rest, **how: recorded.append(call) or run(call, *rest, **how)
    try:
        result = function(*args, **kwargs)
    finally:
        del sender_of(client).send, client._run
    return result, [call.message.kernel for call in recorded]


def step(u, dt):
    return u + dt * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u)


@pytest.mark.parametrize(
    "u", [U, LARGE, U.astype("f4"), np.zeros((0, 3)), U[:1, :1]], ids=lambda u: f"{u.dtype}{list(u.shape)}"
)
def test_a_function_runs_as_one_program_bit_for_bit(client, u):
    result, kernels = calls(client, client.jit(step, exact=True), put(client, u), 0.1)
    assert kernels == ["graph"]
    expected = step(u, 0.1)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(result.get(), expected)


FUNCTIONS = {
    "operators": lambda xp, u: -u * 2 + u**2 / (abs(u) + 1) - u % 3 // 2,
    "methods": lambda xp, u: u.clip(-1, 1).sum(axis=0) + u.T.reshape(9, 13).max(axis=1),
    "rows": lambda xp, u: sum((row * k for k, row in enumerate(u)), start=u[0]),
    "products": lambda xp, u: u @ u.T @ np.ones(13),
    "arrays of this process": lambda xp, u: u * np.arange(9) + np.ones((13, 1)),
    "linear algebra": lambda xp, u: np.linalg.inv(u.T @ u + np.eye(9)),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_what_arrays_have_is_traced(client, function):
    results, kernels = calls(client, client.jit(lambda u: function(client.xp, u)), put(client, U))
    assert kernels == ["graph"]
    expected = function(np, U)
    assert results.dtype == expected.dtype
    assert np.allclose(results.get(), expected, rtol=1e-12)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class State:
    u: Any
    time: Any = 0.0

    def __post_init__(self):
        assert self.u is not None


def test_arguments_and_results_are_trees(client):
    @client.jit(exact=True)
    def f(state, *rest, params, nothing=None):
        assert nothing is None
        (weights,) = params["w"]
        total = state.u * weights + rest[0].left - rest[0].right
        return [State(total, state.time + 1), Pair(rest[1], None), {"b": total.sum(), 3: None}]

    u = put(client, U)
    state, pair, others = f(State(u, 2.0), Pair(u, 1), u, params={"w": [np.arange(9)]})
    expected = U * np.arange(9) + U - 1
    assert np.array_equal(state.u.get(), expected)
    assert float(state.time) == 3.0
    assert np.array_equal(pair.left.get(), U)
    assert pair.right is None
    assert (others[3], others.keys()) == (None, {"b", 3})
    assert np.isclose(float(others["b"]), expected.sum())


def test_an_array_that_many_calls_take_is_written_once(client):
    array = np.arange(64.0)

    def summed(u, count):
        for _ in range(count):
            u = u + array
        return u

    for count, is_constant in ((3, True), (200, False)):
        form = client.jit(summed, static="count").trace(np.ones(64), count).form
        assert (Constant.of(array) in form.nodes[0].operands) is is_constant


def test_results_may_be_arguments_constants_and_the_same(client):
    w = put(client, U)

    @client.jit
    def f(u):
        return u, u, w, 3.5, np.arange(3)

    recorded = f(w)
    for result, expected in zip(recorded, (U, U, U, 3.5, np.arange(3)), strict=True):
        assert np.array_equal(result.get(), expected)
    recorded[0].delete()
    assert np.array_equal(recorded[1].get(), w.get())


def test_an_array_that_is_changed_and_returned_has_its_spec_and_is_not_deleted_as_donated(client):
    def changed(u):
        u += 1
        return u * 2, u, u * 3

    u = client.put(np.arange(8.0), mesh={"a": 4, "b": 2}, spec="a")
    doubled, same, tripled = client.jit(changed, donate="u", out_specs=["b", (("a", "b"),), None])(u)
    assert [array.spec for array in (doubled, same)] == [sc.P("b"), sc.P(("a", "b"))]
    for array, factor in ((doubled, 2), (u, 1), (same, 1), (tripled, 3)):
        np.testing.assert_array_equal(array.get(), (np.arange(8.0) + 1) * factor)
    with pytest.raises(sc.InvalidParameterError, match=r"out_specs\[0\] is P\('a'\), and that result is a view"):
        client.jit(lambda u: np.add(u, 1, out=u)[:4], out_specs=["a"])(u)


def test_donated_arrays_are_deleted_after_the_call(client):
    step = client.jit(lambda u, v: u + v, donate="u")
    u, v = put(client, U), put(client, U)
    result = step(u, v)
    assert (u.lost, v.lost) == (True, False)
    assert np.array_equal(result.get(), 2 * U)
    with pytest.raises(sc.ArrayLostError, match=r"which was donated to <lambda>\(\); use its result instead"):
        u + 1


def test_functions_that_make_equal_calls_have_one_program(client):
    def one(u):
        unused = np.sin(u) * 3
        assert unused is not None
        return np.absolute(u[1:]) + u.sum(axis=-1)[1:, None] / 2

    def another(u):
        client.xp.cos(u)
        part = client.abs(u[1:13, ...], keep=True).array
        again = abs(u[1:])
        assert again is not part
        total = np.sum(u, axis=1, keepdims=False)
        return np.add(again, np.true_divide(total[1:, None], 2.0))

    def different(u):
        return one(u) * 2

    programs = [client.jit(f).trace(sc.Array((13, 9), "f8")) for f in (one, another, different)]
    assert programs[0].form == programs[1].form
    assert programs[0].key == programs[1].key != programs[2].key


def test_a_traced_function_in_another_is_a_part_of_it(client):
    inner = client.jit(lambda u: u * 2)
    result, kernels = calls(client, client.jit(lambda u: inner(u) + inner(u + 1)), put(client, U))
    assert kernels == ["graph"]
    assert np.array_equal(result.get(), 2 * U + 2 * (U + 1))


@pytest.mark.parametrize("u", [U, U.astype("f4")], ids=lambda u: u.dtype)
def test_a_function_is_repeated_in_one_launch(client, u):
    traced = client.jit(step, exact=True)
    expected = u
    for _ in range(5):
        expected = step(expected, 0.1)
    h = put(client, u)
    result, kernels = calls(client, traced.repeat, h, 0.1, times=5)
    assert kernels == ["graph"]
    assert np.array_equal(result.get(), expected)
    assert result.spec == h.spec
    assert np.array_equal(traced.repeat(h, dt=0.1, times=1).get(), step(u, 0.1))
    assert np.array_equal(np.asarray(traced.repeat(u, 0.1, times=0)), u)


def test_states_of_any_structure_are_repeated(client):
    @client.jit(static="scale")
    def f(state, weights, scale):
        u = state["u"] * scale + weights["w"]
        return {"u": u, "count": state["count"] + 1, "last": state["u"].sum()}

    u, w = np.arange(5.0), np.ones(5)
    state = f.repeat({"u": u, "count": 0, "last": 0.0}, {"w": w}, 2, times=4)
    for _ in range(4):
        last, u = u.sum(), u * 2 + w
    assert np.array_equal(state["u"].get(), u)
    assert (int(state["count"]), float(state["last"])) == (4, last)


def test_loops_that_are_refused(client):
    u = put(client, U)
    same = client.jit(lambda u: u)
    for times in (-1, 2.5):
        refused = pytest.raises(sc.InvalidParameterError, match=f"times of repeat is {times}; give an integer")
        with refused:
            same.repeat(u, times=times)
        with refused:
            client.jit(lambda u, times=times: same.repeat(u, times=times))(u)
    with pytest.raises(sc.InvalidParameterError, match=r"times of repeat is .*float64.*; give an integer"):
        client.jit(lambda u: same.repeat(u, times=u.sum()))(u)
    with pytest.raises(sc.TracingError, match=r"another structure than that of its argument u"):
        client.jit(lambda u: (u, u)).repeat(u, times=2)
    with pytest.raises(sc.TracingError, match=r"returns float64\[13,9\] where its argument u has float32\[13,9\]"):
        client.jit(lambda u: u * np.float64(2)).repeat(put(client, U.astype("f4")), times=2)


def test_more_specs_than_results_are_refused(client):
    u = np.ones(3)
    with pytest.raises(sc.InvalidParameterError, match=r"out_specs has 2 specs, and .* returns 1 arrays"):
        client.jit(lambda u: u * 2, out_specs=[None, sc.P("x")])(u)


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


def test_axes_of_a_traced_call_count_from_the_last_of_what_they_are_of(client):
    keys = np.array([[[0, 1, 0], [2, 1, 1]], [[1, 1, 0], [0, 2, 0]]])
    for axis in (-2, -1, 0, 1):
        traced = client.jit(lambda x, axis=axis: client.submit("lexsort", x, axis=axis))(keys)
        assert np.array_equal(traced.get(), np.lexsort(keys, axis=axis))


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
    with pytest.raises(TypeError, match=r"<lambda> .* other arguments than \(u\): too many positional arguments"):
        client.jit(lambda u: u)(u, u)


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


def test_long_loops_are_one_call(client):
    result, kernels = calls(client, client.jit(lambda n: n + 1).repeat, 5, times=3000)
    assert kernels == ["graph"]
    assert int(result) == 3005
    inner = client.jit(lambda u, v: u + v)
    assert int(client.jit(lambda u: inner.repeat(u, 3, times=2))(1)) == 7


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


def test_two_clients_with_one_function_compile_it_once(exclusive_server):
    with sc.connect(exclusive_server.address) as client, sc.connect(exclusive_server.address) as other:
        client.jit(lambda u: np.tanh(u * 3.25).sum(axis=0) + 1)(np.ones((13, 9))).get()
        before = client.usage().programs
        total = other.jit(lambda v: [np.sin(v), np.add(np.sum(np.tanh(np.multiply(v, 3.25)), 0), 1)][1])
        assert total.plan(sc.Array((13, 9), "f8")).strategy == "composed"
        assert np.allclose(total(np.ones((13, 9))).get(), 13 * np.tanh(3.25) + 1)
        assert client.usage().programs == before


def test_parameters_that_are_equal_and_of_other_types_are_other_calls(client):
    u = client.put(np.arange(12.0).reshape(4, 3))
    assert np.array_equal(client.jit(lambda u: np.roll(u, 1, 0))(u).get(), np.roll(u.get(), 1, 0))
    with pytest.raises(sc.ShardcallError, match="True"):
        client.jit(lambda u: np.roll(u, True, 0))(u)


def test_a_function_fills_the_arrays_that_it_creates_by_numpy(client):
    def filled(x):
        out, sums, halves = np.zeros(x.shape), np.zeros(3), np.empty(2 * x.shape[1])
        out[1:-1] = x[:-2] + x[2:]
        for i in range(3):
            sums[i] = (x[i] * i).sum()
        halves[: x.shape[1]], halves[x.shape[1] :] = x[0], x[1]
        return out, sums, halves

    x = np.random.default_rng(3).normal(size=(13, 5))
    results = client.jit(filled)(client.put(x, mesh=sc.Mesh(x=4)))
    for result, expected in zip(results, filled(x), strict=True):
        np.testing.assert_allclose(result.get(), expected, rtol=1e-14)


X = np.arange(9.0).reshape(3, 3)


def inverted(xp, u):
    return xp.linalg.inv(u * 0)  # 1: the line that errors name


def of_an_index(xp, u):
    return u[u.sum().astype(int)] * 2  # 1


def at(function, line, kernel):
    code = function.__code__
    return re.escape(f"{kernel} at {code.co_filename}:{code.co_firstlineno + line}: ")


def test_errors_of_repeated_functions_name_the_line(client):
    result = client.jit(lambda u: inverted(client.xp, u)).repeat(X, times=3)
    with pytest.raises(sc.LinAlgError, match=at(inverted, 1, "inv")):
        result.get()


def test_errors_of_calls_that_are_waited_for_name_the_line(client):
    large = np.zeros((1, 1 << 20))  # no operand of a call stream
    with pytest.raises(sc.IndexOutOfRangeError, match="^" + at(of_an_index, 1, "take")):
        client.jit(lambda u, v: (of_an_index(client.xp, u), v + 1))(X, large)


def largest(u):
    return u[u > 3].max(axis=0)  # 1


def test_the_largest_of_no_elements_is_refused_as_by_numpy(client):
    for x in (X[:, 0], client.put(X[1:, 0], mesh=sc.Mesh(x=2))):
        assert (client.jit(largest)(x), client.grad(largest)(x)[-1]) == (6, 1)
        for function in (client.jit(largest), client.grad(largest), client.jit(largest, exact=True)):
            with pytest.raises(
                ValueError, match=at(largest, 1, "max") + "where is true for no element, .* give initial"
            ):
                function(x - 9).get()


def test_a_print_shows_the_types_of_traced_arrays(client):
    texts = set()

    def shown(_, u):
        z = np.zeros(3)
        z[0] = u[0]
        texts.update((str(u), f"{u}", str(z)))
        return u + z

    assert client.jit(lambda u: client.xp.fori_loop(0, 2, shown, u))(np.ones(3))[0] == 4
    assert texts == {"<RemoteArray float64[3], traced>"}


def spread(xp, u):
    v = u + 1
    return xp.with_spec(v * 2, sc.P("q"))  # 2


def without_derivative(u):
    v = u * 2
    return np.nextafter(v, 1).sum()  # 2


def test_plans_that_are_refused_name_the_line(client):
    with pytest.raises(sc.ShardingError, match="^" + at(spread, 2, "reshard") + "the spec .*'q'"):
        client.jit(lambda u: spread(client.xp, u)).plan(X)
    with pytest.raises(sc.InvalidParameterError, match="^" + at(without_derivative, 2, "nextafter")):
        client.grad(without_derivative).plan(X)

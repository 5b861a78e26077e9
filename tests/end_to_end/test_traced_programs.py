"""Functions that run as one program: results, programs and limits."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from client_parts import sender_of

import shardcall as sc
from shardcall_core.graphs.graph import Constant

U = np.random.default_rng(5).normal(size=(13, 9))
LARGE = np.random.default_rng(6).normal(size=(64, 64))


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


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
    traced = client.jit(step, exact=True)
    result, kernels = calls(client, traced, put(client, u), 0.1)
    assert kernels == ["graph"]
    expected = step(u, 0.1)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(result.get(), expected)


FUNCTIONS = {
    "operators": lambda xp, u: -u * 2 + u**2 / (abs(u) + 1) - u % 3 // 2,
    "comparisons": lambda xp, u: ((u > 0) & (u < 1)) | ~(u != u.T.T),
    "numpy": lambda xp, u: np.where(u > 0, np.sqrt(np.abs(u)), np.tanh(u)),
    "namespace": lambda xp, u: xp.concatenate([xp.flip(u, axis=1), xp.zeros((2, 9))]),
    "methods": lambda xp, u: u.clip(-1, 1).sum(axis=0) + u.T.reshape(9, 13).max(axis=1),
    "slices": lambda xp, u: u[1:, ::2] - u[:-1, ::2],
    "rows": lambda xp, u: sum((row * k for k, row in enumerate(u)), start=u[0]),
    "indices": lambda xp, u: u[[0, 2], [1, 1]],
    "assignment": lambda xp, u: _assigned(u.copy()),
    "a part": lambda xp, u: _increased(u.copy()),
    "products": lambda xp, u: u @ u.T @ np.ones(13),
    "arrays of this process": lambda xp, u: u * np.arange(9) + np.ones((13, 1)),
    "statistics": lambda xp, u: u.std(axis=0, ddof=1) + np.var(u, axis=0) + np.mean(u),
    "two results": lambda xp, u: np.divmod(u, 2),
    "modf": lambda xp, u: np.modf(u),
    "cumsum": lambda xp, u: np.cumsum(u, axis=-1),
    "linear algebra": lambda xp, u: np.linalg.inv(u.T @ u + np.eye(9)),
}


SHORT = ("operators", "methods", "indices", "a part", "arrays of this process", "two results")


def _assigned(u):
    u[0] = 0
    u[1:3, 2] = u[4:6, 2]
    return u


def _increased(u):
    u[0] += 1
    u[:, 1] *= 2
    return u


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in FUNCTIONS]
)
def test_what_arrays_have_is_traced(client, name):
    function = FUNCTIONS[name]
    results, kernels = calls(client, client.jit(lambda u: function(client.xp, u)), put(client, U))
    assert kernels == ["graph"]
    expected = function(np, U)
    for result, want in zip(
        *[item if isinstance(item, tuple) else (item,) for item in (results, expected)], strict=True
    ):
        assert result.dtype == want.dtype
        assert np.allclose(result.get(), want, rtol=1e-12)


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


@pytest.mark.parametrize("u", [U, pytest.param(LARGE, marks=pytest.mark.long), U.astype("f4")], ids=lambda u: u.dtype)
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


@pytest.mark.parametrize("convert", [round, math.floor, math.ceil, math.trunc])
def test_numbers_have_no_values_while_traced(client, convert):
    with pytest.raises(sc.TracingError, match=rf"{convert.__name__}\(\) needs the value .* static="):
        client.jit(lambda u, n: u * convert(n))(U, 7)
    assert [int(item) for item in client.jit(lambda n: divmod(n, 3))(7)] == [2, 1]


def test_errors_of_arguments_are_raised_in_their_line(client):
    with pytest.raises(sc.ShardcallError, match="y has shape"):
        client.jit(lambda u: u + np.ones(7))(put(client, U))
    with pytest.raises(TypeError, match=r"numpy\.isnat does not run on the mesh"):
        client.jit(np.isnat)(put(client, U))


def test_more_specs_than_results_are_refused(client):
    u = np.ones(3)
    with pytest.raises(sc.InvalidParameterError, match=r"out_specs has 2 specs, and .* returns 1 arrays"):
        client.jit(lambda u: u * 2, out_specs=[None, sc.P("x")])(u)

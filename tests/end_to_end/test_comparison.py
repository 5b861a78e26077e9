"""Comparison of traced functions with NumPy and with calls one by one."""

import numpy as np
import pytest

import shardcall as sc

U = np.random.default_rng(5).normal(size=(13, 9))


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


@pytest.fixture
def u(client):
    return client.put(U, mesh={"x": 4}, spec=("x", None))


def step(u, dt):
    return u + dt * (np.roll(u, 1, 0) - 2 * u)


def test_a_comparison_has_the_times_and_the_differences_of_numpy_calls_and_program(client, u):
    compared = client.jit(step, exact=True).compare(u, dt=0.1)
    assert [row.name for row in compared.rows] == ["NumPy", "eager", "program"]
    assert all(row.seconds > 0 for row in compared.rows)
    assert [row.ratio for row in compared.rows] == [row.seconds / compared["NumPy"].seconds for row in compared.rows]
    assert [row.difference for row in compared.rows] == [None, 0, 0]
    assert 3 <= compared.rounds <= 15
    heading, *lines = repr(compared).splitlines()
    assert heading.split() == ["ms", "÷", "NumPy", "equal"]
    assert [line.split()[0] for line in lines] == ["NumPy", "eager", "program"]
    assert lines[2].endswith("yes")
    assert "÷ NumPy" in compared._repr_html_()
    with pytest.raises(KeyError, match="jit"):
        compared["jit"]


def test_arguments_of_the_caller_stay_as_they_are(client, u):
    @client.jit(donate="a")
    def smooth(a, inner, here, count):
        inner[1:] *= 0.5
        here += a.sum()
        count += 1

    here, count = np.zeros(3), client.put(np.zeros((), np.int64), mesh={"x": 4})
    compared = smooth.compare(u, u[1:-1], here, count)
    assert compared["program"].difference < 1e-10  # of a sum
    assert np.array_equal(u.get(), U)
    assert not here.any()
    assert count.get() == 0


def test_a_view_and_its_array_are_so_in_every_run(client, u):
    def write(a, row):
        row[:] = 0
        return a.sum(axis=1)

    compared = client.jit(write).compare(u, u[2])
    assert compared["eager"].difference < 1e-12
    assert compared["program"].difference < 1e-12


def test_a_function_that_numpy_does_not_run_has_the_reason(client, u):
    xp = client.xp
    compared = client.jit(lambda a: xp.tanh(a) + 0).compare(u)
    assert "client.xp" in repr(compared).splitlines()[1]
    assert compared["NumPy"].seconds is None
    assert compared["program"].ratio is None
    assert compared["program"].difference == 0  # from the calls
    weights = client.put(np.ones(9))  # on all devices, as what the next line puts
    assert "on the mesh" in client.jit(lambda a: a * weights).compare(U)["NumPy"].note
    failed = client.jit(lambda a: a.at[0].set(1)).compare(u)
    assert failed["NumPy"].note.startswith("AttributeError")
    assert failed["eager"].seconds > 0
    gradient = client.grad(lambda a: (a * a).sum()).compare(u)
    assert ["alone" in row.note for row in gradient.rows] == [True, True, False]
    assert gradient["program"].difference is None


def test_a_result_that_differs_is_noticed(client):
    def add(a, in_numpy, on_mesh):
        return a + (in_numpy if isinstance(a, np.ndarray) else on_mesh)

    traced = client.jit(add, static=(1, 2))
    compared = traced.compare(np.array([1.0, np.nan]), 1, 1.5)
    assert compared["program"].difference == 0.5
    assert repr(compared).endswith("within 0.5")
    other_type = traced.compare(np.arange(3), 1, 1.0)
    assert other_type["eager"].difference == float("inf")
    assert repr(other_type).endswith("no")


def test_static_arguments_and_trees_are_passed_on(client):
    @client.jit(static="power")
    def advance(state, power):
        return {"u": state["u"] ** power, "n": state["n"] + 1}

    assert advance.compare({"u": np.arange(1.0, 9.0), "n": 0}, 2)["program"].difference == 0
    assert client.jit(lambda *arrays: arrays[0] - arrays[1]).compare(U, U)["program"].difference == 0


def test_calls_without_a_meaning_are_refused(client, u):
    traced, total = client.jit(step), client.put(np.zeros(()))
    with pytest.raises(sc.InvalidOperandError, match="with values"):
        traced.compare(sc.Array((3, 3), "float64"), 0.1)

    def count(a):
        total[...] += a.sum()

    with pytest.raises(sc.TracingError, match="no argument"):
        client.jit(count).compare(u)
    with pytest.raises(sc.TracingError, match="is traced"):
        client.jit(lambda a: traced.compare(a, 0.1))(u)
    assert total.get() == 0

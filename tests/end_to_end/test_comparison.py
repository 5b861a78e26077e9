"""Comparison of traced functions with NumPy and with calls one by one."""

import numpy as np
import pytest

import shardcall as sc

U = np.random.default_rng(5).normal(size=(13, 9))


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

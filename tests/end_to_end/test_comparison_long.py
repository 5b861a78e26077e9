"""The tests of `test_comparison.py` that take long."""

import numpy as np
import pytest
from end_to_end import test_comparison as short
from end_to_end.test_comparison import U

pytestmark = pytest.mark.long

u = short.u


def test_arguments_of_the_caller_stay_as_they_are(client, u):
    @client.jit(donate="a")
    def smooth(a, inner, here, count):
        inner[1:] *= 0.5
        here += a.sum()
        count += 1

    here, count = np.zeros(3), client.put(np.zeros((), np.int64), mesh={"x": 4})
    assert smooth.compare(u, u[1:-1], here, count)["program"].difference < 1e-10  # of a sum
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


def test_static_arguments_and_trees_are_passed_on(client):
    @client.jit(static="power")
    def advance(state, power):
        return {"u": state["u"] ** power, "n": state["n"] + 1}

    assert advance.compare({"u": np.arange(1.0, 9.0), "n": 0}, 2)["program"].difference == 0
    assert client.jit(lambda *arrays: arrays[0] - arrays[1]).compare(U, U)["program"].difference == 0

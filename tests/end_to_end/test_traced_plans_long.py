"""The tests of `test_traced_plans.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_traced_plans import AXES

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


def test_derivatives_batches_and_loops_in_slices_have_steps(client):
    u = client.put(np.ones((6, 4)), mesh=AXES, spec=("x", None))
    (step,) = client.grad(lambda u: np.sin(u).sum()).plan(u).steps
    assert [step.kernel for step in step.bodies[0]] == ["sin", "sum"]
    (step,) = client.grad(lambda u: (u[1:] + u[:-1]).sum()).plan(u).steps
    assert "together" not in {step.strategy for step in step.bodies[0]}
    (step,) = client.vmap(lambda row: row * 2).plan(u).steps
    assert step.bodies[0][0].results[0].type == sc.Array(4, "float64")
    sliced = client.jit(lambda u, n: np.cos(client.xp.fori_loop(0, n, lambda _, s: s * 0.5, u)))
    assert [[step.kernel for step in plan.steps] for plan in sliced.plan(u, 5)] == [["multiply"], ["cos"]]

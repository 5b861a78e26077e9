"""Collective products through a real client: equal to NumPy's, with the sent and held bytes in the plan."""

import numpy as np

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(x=4, y=2)


def test_either_operand_or_the_sums_may_travel(client):
    generator = np.random.default_rng(6)
    lhs, rhs = generator.standard_normal((33, 18)), generator.standard_normal((18, 21))
    calls = {
        "ring": (P("x", None), P(None, "x"), P(None, "x")),
        "bidirectional_ring": (P("x", None), P("x", "y"), P("x", "y")),
        "psum_scatter_bidirectional_ring": (P("y", "x"), P("x", None), P("y", "x")),
    }
    for strategy, (lhs_spec, rhs_spec, out_spec) in calls.items():
        result = client.collective_matmul(
            lhs, rhs, mesh=MESH, axis_name="x", lhs_spec=lhs_spec, rhs_spec=rhs_spec, strategy=strategy,
            out_spec=None if strategy == "ring" else out_spec,
        )  # fmt: skip
        np.testing.assert_allclose(result.array, lhs @ rhs, rtol=1e-12, atol=1e-12)
        assert (result.plan.strategy, result.plan.results[0].spec) == (strategy, out_spec)
        assert result.plan.memory.temp_bytes > 0


def test_flags_for_gpus_are_in_no_plan_of_cpu_devices(client):
    lhs = rhs = sc.Array((8, 8), "float32")
    plan = client.plan("collective_matmul", lhs, rhs, axis_name="x", mesh=MESH)
    assert "--xla_cpu_collective_call_terminate_timeout_seconds" in plan.key["flags"]
    assert "xla_gpu" not in plan.key["flags"]

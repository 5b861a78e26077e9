"""Methods of clients beside NumPy's functions: their results, layouts, plans and refusals."""

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)
SHARDED = {"mesh": MESH, "spec": P("a", "b")}
GRID = np.arange(54.0).reshape(9, 6)


def integers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(float)


def test_a_padded_move_keeps_the_smallest_numbers(client):
    x = np.array([1, 0x8001, 0x7F, 0x3F80, 2], np.uint16).view(ml_dtypes.bfloat16)  # subnormals, but one
    for strategy in ("auto", "gspmd"):
        moved = client.reshard(x, mesh=sc.Mesh(x=3), spec=P(None), out_spec=P("x"), strategy=strategy).array
        np.testing.assert_array_equal(moved.view(np.uint16), x.view(np.uint16))


def test_rolls_beyond_64_bits_go_round(client):
    x = GRID
    for shift, axis in ((2**100, None), (-(2**63) - 1, 1), (np.uint64(2**63 + 2), -2)):
        np.testing.assert_array_equal(client.roll(x, shift, axis, **SHARDED).array, np.roll(x, shift, axis))
    for shift in ((2**70, 3), [-(10**30), np.int8(-1)]):
        np.testing.assert_array_equal(client.roll(x, shift, (0, 1), **SHARDED).array, np.roll(x, shift, (0, 1)))
    with pytest.raises(sc.AxisError, match="axis=5"):
        client.roll(x, 2**70, 5)
    with pytest.raises(sc.InvalidParameterError, match="shift"):
        client.roll(x, "3")


def test_one_axis_of_a_list_is_an_axis(client):
    np.testing.assert_allclose(client.gradient(GRID**2, axis=[0], **SHARDED).array, np.gradient(GRID**2, axis=0))


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[s]"])
def test_dates_say_how_they_can_travel(client, dtype):
    x = np.arange(8).astype(dtype)
    with pytest.raises(sc.OperandTypeError, match=r"give its integers, \.view\('int64'\)"):
        client.diff(x)
    differences = client.diff(x.view("int64")).array
    np.testing.assert_array_equal(differences.view(dtype.replace("datetime", "timedelta")), np.diff(x))


def test_stacks_of_matrices_are_multiplied_transposed(client):
    lhs, rhs = integers(0, 3, 11, 13), integers(1, 5, 13)
    result = client.matmul(lhs, rhs, transpose_rhs=True, mesh=MESH, lhs_spec=P(None, "a", "b"), rhs_spec=P(None, "b"))
    np.testing.assert_array_equal(result.array, lhs @ rhs.T)
    assert {collective.opcode for collective in result.plan.collectives} == {"reduce-scatter"}
    assert "reduce-scatter completes the partial sums" in result.plan.strategy_reason


def test_a_refused_product_names_the_shapes_of_the_views(client):
    on_mesh = client.put(integers(12, 6, 4))
    with pytest.raises(ValueError, match=r"float64\[4,6\]|\(4, 6\)|4, 6"):
        on_mesh.T @ np.ones(4)


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
            lhs, rhs, mesh=sc.Mesh(x=4, y=2), axis_name="x", lhs_spec=lhs_spec, rhs_spec=rhs_spec, strategy=strategy,
            out_spec=None if strategy == "ring" else out_spec,
        )  # fmt: skip
        np.testing.assert_allclose(result.array, lhs @ rhs, rtol=1e-12, atol=1e-12)
        assert (result.plan.strategy, result.plan.results[0].spec) == (strategy, out_spec)
        assert result.plan.memory.temp_bytes > 0


def test_flags_for_gpus_are_in_no_plan_of_cpu_devices(client):
    lhs = rhs = sc.Array((8, 8), "float32")
    plan = client.plan("collective_matmul", lhs, rhs, axis_name="x", mesh=sc.Mesh(x=4, y=2))
    assert "--xla_cpu_collective_call_terminate_timeout_seconds" in plan.key["flags"]
    assert "xla_gpu" not in plan.key["flags"]

"""Products through the client to a real server, checked against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(a=4, b=2)


def integers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(float)


def test_stacks_of_matrices_are_multiplied_transposed(client):
    lhs, rhs = integers(0, 3, 11, 13), integers(1, 5, 13)
    result = client.matmul(lhs, rhs, transpose_rhs=True, mesh=MESH, lhs_spec=P(None, "a", "b"), rhs_spec=P(None, "b"))
    np.testing.assert_array_equal(result.array, lhs @ rhs.T)
    assert {collective.opcode for collective in result.plan.collectives} == {"reduce-scatter"}
    assert "reduce-scatter completes the partial sums" in result.plan.strategy_reason


@pytest.mark.parametrize("strategy", ["all_gather", "summa"])
def test_both_operands_sharded_along_both_mesh_axes(client, strategy):
    lhs, rhs = integers(2, 11, 13), integers(3, 13, 5)
    result = client.matmul(lhs, rhs, mesh=MESH, strategy=strategy)
    np.testing.assert_array_equal(result.array, lhs @ rhs)
    assert result.plan.results[0].spec == P("a", "b")


def test_narrow_factors_may_give_a_wide_product(client):
    lhs = integers(4, 8, 300).astype(ml_dtypes.bfloat16)
    result = client.matmul(lhs, lhs, transpose_rhs=True, preferred_element_type=np.float32, mesh=MESH).array
    np.testing.assert_array_equal(result, lhs.astype(np.float32) @ lhs.T.astype(np.float32), strict=True)


def test_einsum_of_one_and_of_two_arrays(client):
    lhs, rhs = integers(5, 9, 7), integers(6, 7, 9)
    np.testing.assert_array_equal(client.einsum("ij,ji", lhs, rhs, mesh=MESH).array, np.einsum("ij,ji", lhs, rhs))
    np.testing.assert_array_equal(client.einsum("ij->j", lhs, mesh=MESH).array, lhs.sum(0))


def test_subscripts_that_mean_nothing_are_refused(client):
    with pytest.raises(sc.InvalidParameterError, match="has 2 terms and 1 operand came"):
        client.einsum("ij,jk", np.ones((2, 2)))


def test_products_read_the_matrix_of_a_transposed_view(client):
    a, y, x = integers(7, 67, 61), integers(8, 67), integers(9, 61)
    on_mesh, of_rows, of_columns = client.put(a, mesh=sc.Mesh(x=8)), client.put(y), client.put(x)
    np.testing.assert_array_equal((on_mesh.T @ of_rows).get(), a.T @ y)
    np.testing.assert_array_equal((of_columns @ on_mesh.T).get(), x @ a.T)
    np.testing.assert_array_equal((on_mesh.T @ on_mesh).get(), a.T @ a)
    np.testing.assert_array_equal((on_mesh.T.T @ of_columns).get(), a @ x)
    np.testing.assert_array_equal((on_mesh[3:40].T @ of_rows[3:40]).get(), a[3:40].T @ y[3:40])
    np.testing.assert_array_equal(
        client.xp.matmul(on_mesh.T, on_mesh, transpose_lhs=True, transpose_rhs=True).get(), a @ a.T
    )
    view = on_mesh.T
    on_mesh[5] = 2.0
    a[5] = 2.0
    np.testing.assert_array_equal((view @ y).get(), a.T @ y)
    view[0] = 1.0
    np.testing.assert_array_equal((on_mesh @ of_columns).get(), np.where(np.arange(61) == 0, 1.0, a) @ x)
    stack = integers(10, 3, 5, 7)
    axes = (0, 2, 1), (2, 1, 0)
    for permutation in axes:
        transposed = stack.transpose(permutation)
        factor = integers(11, transposed.shape[-1])
        np.testing.assert_array_equal((client.put(stack).transpose(permutation) @ factor).get(), transposed @ factor)


def test_a_refused_product_names_the_shapes_of_the_views(client):
    on_mesh = client.put(integers(12, 6, 4))
    with pytest.raises(ValueError, match=r"float64\[4,6\]|\(4, 6\)|4, 6"):
        on_mesh.T @ np.ones(4)


def test_a_small_factor_is_moved_to_the_blocks_of_a_large_one(client):
    lhs, rhs = integers(13, 8, 3000), integers(14, 3000, 200)
    mesh = sc.Mesh(x=8)
    result = client.matmul(lhs, rhs, mesh=mesh, lhs_spec=P("x", None), rhs_spec=P("x", None))
    np.testing.assert_array_equal(result.array, lhs @ rhs)
    assert (result.plan.strategy, result.plan.results[0].spec) == ("reshard", P("x", None))
    assert "fewest bytes" in result.plan.strategy_reason

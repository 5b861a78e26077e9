"""Methods of clients that take long: movements, differences of every kind, and strategies of products."""

import numpy as np
import pytest
from end_to_end.test_client_methods import MESH, SHARDED, integers

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


def test_the_family_of_differences_meets_numpy(client):
    x = np.random.default_rng(7).standard_normal((33, 10))
    np.testing.assert_array_equal(client.shift(x, -2, axis=0, mode="periodic", **SHARDED).array, np.roll(x, -2, 0))
    filled = client.shift(x, 3, axis=0, fill=np.nan, **SHARDED).array
    np.testing.assert_array_equal(filled, np.concatenate([np.full((3, 10), np.nan), x[:-3]]))
    result = client.gradient(x, 0.5, np.arange(10.0) ** 2, edge_order=2, **SHARDED)
    for derivative, numpys in zip(result.arrays, np.gradient(x, 0.5, np.arange(10.0) ** 2, edge_order=2), strict=True):
        np.testing.assert_allclose(derivative, numpys, rtol=1e-12, atol=1e-12)
    rolled = sum(np.roll(x, 1, axis) - 2 * x + np.roll(x, -1, axis) for axis in (0, 1))
    laplacian = client.laplacian(x, **SHARDED)
    np.testing.assert_allclose(laplacian.array, rolled, rtol=1e-12, atol=1e-12)
    assert laplacian.plan.strategy == "halo"


@pytest.mark.parametrize("strategy", ["all_gather", "summa"])
def test_both_operands_sharded_along_both_mesh_axes(client, strategy):
    lhs, rhs = integers(2, 11, 13), integers(3, 13, 5)
    result = client.matmul(lhs, rhs, mesh=MESH, strategy=strategy)
    np.testing.assert_array_equal(result.array, lhs @ rhs)
    assert result.plan.results[0].spec == P("a", "b")


def test_products_read_the_matrix_of_a_transposed_view(client):
    a, y, x = integers(7, 67, 61), integers(8, 67), integers(9, 61)
    on_mesh, of_rows, of_columns = client.put(a, mesh=sc.Mesh(x=8)), client.put(y), client.put(x)
    np.testing.assert_array_equal((on_mesh.T @ of_rows).get(), a.T @ y)
    np.testing.assert_array_equal((of_columns @ on_mesh.T).get(), x @ a.T)
    np.testing.assert_array_equal((on_mesh.T @ on_mesh).get(), a.T @ a)
    np.testing.assert_array_equal((on_mesh.T.T @ of_columns).get(), a @ x)
    np.testing.assert_array_equal((on_mesh[3:40].T @ of_rows[3:40]).get(), a[3:40].T @ y[3:40])
    both = client.xp.matmul(on_mesh.T, on_mesh, transpose_lhs=True, transpose_rhs=True)
    np.testing.assert_array_equal(both.get(), a @ a.T)
    view = on_mesh.T
    on_mesh[5] = 2.0
    a[5] = 2.0
    np.testing.assert_array_equal((view @ y).get(), a.T @ y)
    view[0] = 1.0
    np.testing.assert_array_equal((on_mesh @ of_columns).get(), np.where(np.arange(61) == 0, 1.0, a) @ x)
    stack = integers(10, 3, 5, 7)
    for permutation in ((0, 2, 1), (2, 1, 0)):
        transposed = stack.transpose(permutation)
        factor = integers(11, transposed.shape[-1])
        np.testing.assert_array_equal((client.put(stack).transpose(permutation) @ factor).get(), transposed @ factor)


def test_a_small_factor_is_moved_to_the_blocks_of_a_large_one(client):
    lhs, rhs = integers(13, 8, 3000), integers(14, 3000, 200)
    result = client.matmul(lhs, rhs, mesh=sc.Mesh(x=8), lhs_spec=P("x", None), rhs_spec=P("x", None))
    np.testing.assert_array_equal(result.array, lhs @ rhs)
    assert (result.plan.strategy, result.plan.results[0].spec) == ("reshard", P("x", None))
    assert "fewest bytes" in result.plan.strategy_reason

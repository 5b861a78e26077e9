"""Products of clients that take long."""

import numpy as np
import pytest
from end_to_end.test_client_methods import integers

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


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

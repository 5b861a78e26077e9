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


def test_a_refused_product_names_the_shapes_of_the_views(client):
    on_mesh = client.put(integers(12, 6, 4))
    with pytest.raises(ValueError, match=r"float64\[4,6\]|\(4, 6\)|4, 6"):
        on_mesh.T @ np.ones(4)

"""Committed and uncommitted arrays meet as in JAX: the uncommitted ones move, and committed ones do not."""

import numpy as np
import pytest

import shardcall as sc

MESH = sc.Mesh(a=4, b=2)
OTHERS = [sc.Mesh(x=4, device_ids=range(4, 8)), sc.Mesh(x=8, device_ids=range(7, -1, -1))]
X = np.random.default_rng(5).normal(size=(16, 12))


@pytest.fixture(scope="module")
def committed(strict_client):
    return strict_client.put(X, mesh=MESH, spec=sc.P("a", "b"))


def test_the_first_committed_operand_decides_wherever_it_is(strict_client, committed):
    ones = strict_client.xp.ones((16, 12))
    for pending in (True, False):
        x = strict_client.xp.positive(committed)
        if not pending:
            strict_client.synchronize()
            assert (x.mesh.axes, ones.mesh.size) == (MESH.axes, 1)
        result = strict_client.xp.add(ones, x)
        assert result.committed
        assert (result.mesh.axes, result.spec) == (MESH.axes, sc.P("a", "b"))
        np.testing.assert_array_equal(result.get(), 1 + X)


def test_pending_committed_arrays_on_different_devices_are_refused_too(strict_client, committed):
    for mesh, says in zip(OTHERS, ("set the mesh of the call", "in another order"), strict=True):
        other = strict_client.put(X, mesh=mesh)
        with pytest.raises(sc.ShardingError, match=says):
            strict_client.xp.add(strict_client.xp.negative(committed), strict_client.xp.negative(other)).get()


def test_without_a_committed_array_nothing_is_committed(strict_client):
    xp = strict_client.xp
    x = xp.sin(xp.arange(12.0))
    y = xp.sum(xp.outer(x, x), axis=0) + 1
    assert (x.committed, y.committed) == (False, False)
    assert y.mesh.size == 1
    np.testing.assert_allclose(y.get(), np.outer(np.sin(np.arange(12.0)), np.sin(np.arange(12.0))).sum(0) + 1)


def test_a_mesh_or_a_spec_commits(strict_client, committed):
    xp, zeros = strict_client.xp, strict_client.xp.zeros((16, 4))
    assert strict_client.sin(np.ones(8), keep=True).array.committed is False
    assert strict_client.sin(np.ones(8), keep=True, mesh=MESH).array.committed
    assert strict_client.sin(np.ones(8), keep=True, spec=sc.P("x")).array.committed
    assert strict_client.sin(committed, keep=True).array.committed
    assert xp.sin(zeros, mesh=MESH).committed
    assert xp.add(zeros, 1, mesh=MESH).mesh.axes == MESH.axes
    assert strict_client.reshard(zeros, spec=sc.P("x"), keep=True).array.committed
    assert strict_client.describe(committed.handle).committed
    assert xp.asarray(X, spec=sc.P("x")).committed
    assert not xp.asarray(X).committed
    assert xp.zeros_like(committed).committed
    assert not xp.zeros_like(zeros).committed


def test_large_uncommitted_arrays_take_the_others_to_their_devices(strict_client):
    large = strict_client.xp.asarray(np.ones((1 << 17) + 3))
    result = strict_client.xp.add(strict_client.xp.ones(1), large)
    assert (large.mesh.size, result.mesh.size, result.committed) == (8, 8, False)


SPECS = [
    ((16, 12), sc.P("a", None), (16, 12), sc.P(None, "b"), sc.P("a", None)),
    ((12,), sc.P("b"), (16, 12), sc.P("a", None), sc.P("a", None)),
    ((16, 12), sc.P(None, None), (12,), sc.P("a"), sc.P(None, None)),
    ((16, 1), sc.P("a", None), (1, 12), sc.P(None, "b"), sc.P("a", "b")),
    ((1, 12), sc.P(None, "a"), (16, 1), sc.P("a", None), sc.P("a", None)),
    ((), sc.P(), (16, 12), sc.P("b", "a"), sc.P("b", "a")),
]


@pytest.mark.parametrize(("shape", "spec", "other_shape", "other_spec", "expected"), SPECS)
def test_elementwise_results_are_sharded_as_the_largest_operand(
    strict_client, shape, spec, other_shape, other_spec, expected
):
    x, y = np.ones(shape), np.full(other_shape, 2.0)
    result = strict_client.xp.add(
        strict_client.put(x, mesh=MESH, spec=spec), strict_client.put(y, mesh=MESH, spec=other_spec)
    )
    assert result.spec == expected
    np.testing.assert_array_equal(result.get(), x + y)

"""The tests of `test_committed_arrays.py` that take long."""

import numpy as np
import pytest
from end_to_end import test_committed_arrays as short
from end_to_end.test_committed_arrays import MESH, OTHERS, X

import shardcall as sc

pytestmark = pytest.mark.long

committed = short.committed
Y = np.random.default_rng(6).normal(size=(12, 16))


FAMILIES = {
    "elementwise": (lambda xp, x, y: xp.add(x, xp.transpose(y)), "add"),
    "where": (lambda xp, x, y: xp.where(xp.greater(x, 0), x, y.T), "where"),
    "product": (lambda xp, x, y: xp.matmul(x, y), "matmul"),
    "einsum": (lambda xp, x, y: xp.einsum("ij,jk->ki", x, y), "einsum"),
    "difference": (lambda xp, x, y: xp.diff(x, axis=0, append=y.T), "diff"),
    "join": (lambda xp, x, y: xp.concatenate([x, y.T]), "concatenate"),
    "reduction": (lambda xp, x, y: xp.sum(x, axis=0, where=xp.greater(y.T, 0)), "sum"),
    "indices": (lambda xp, x, y: xp.take(x, xp.argmax(y, axis=0), axis=0), "take"),
}
"""Functions of x [16, 12] and y [12, 16], and the kernel at which the two meet."""


@pytest.mark.parametrize("operand_state", ["pending", "uncommitted", "local"])
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_not_committed_moves_to_what_is(strict_client, committed, name, operand_state):
    function, _ = FAMILIES[name]
    x = committed if operand_state == "local" else strict_client.xp.positive(committed)
    y = Y if operand_state == "local" else strict_client.xp.asarray(Y)
    if operand_state == "uncommitted":
        strict_client.synchronize()
        assert x.spec == sc.P("a", "b")  # no longer pending
    result = function(strict_client.xp, x, y)
    assert result.committed
    assert result.mesh.axes == MESH.axes
    np.testing.assert_allclose(result.get(), function(np, X, Y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("where", OTHERS)
@pytest.mark.parametrize("name", FAMILIES)
def test_two_committed_arrays_on_different_devices_are_refused(strict_client, committed, name, where):
    function, kernel = FAMILIES[name]
    other = strict_client.put(Y, mesh=OTHERS[where], spec=sc.P(None, "x"))
    x, y = strict_client.xp.positive(committed), strict_client.xp.positive(other)
    strict_client.synchronize()
    assert (x.spec, y.spec) == (sc.P("a", "b"), sc.P(None, "x"))
    with pytest.raises(sc.ShardingError, match=rf"{kernel}.*set the mesh of the call|is on .* and .* on ") as refused:
        function(strict_client.xp, x, y).get()  # by the strict_client, or by the server for operands that are pending
    assert ("in another order" in str(refused.value)) == ("order" in where)


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

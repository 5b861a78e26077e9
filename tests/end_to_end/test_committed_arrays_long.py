"""The tests of `test_committed_arrays.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_committed_arrays import MESH, OTHERS, X
from pairs import pairs_of

import shardcall as sc

pytestmark = pytest.mark.long

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


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module")
def committed(client):
    return client.put(X, mesh=MESH, spec=sc.P("a", "b"))


def numpys(name):
    return FAMILIES[name][0](np, X, Y)


@pytest.mark.parametrize(("name", "operand_state"), pairs_of([*FAMILIES], ["pending", "uncommitted", "local"]))
def test_what_is_not_committed_moves_to_what_is(client, committed, name, operand_state):
    function, _ = FAMILIES[name]
    x = committed if operand_state == "local" else client.xp.positive(committed)
    y = Y if operand_state == "local" else client.xp.asarray(Y)
    if operand_state == "uncommitted":
        client.synchronize()
        assert x.spec == sc.P("a", "b")  # no longer pending
    result = function(client.xp, x, y)
    assert result.committed
    assert result.mesh.axes == MESH.axes
    np.testing.assert_allclose(result.get(), numpys(name), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "where"), pairs_of([*FAMILIES], [*OTHERS]))
def test_two_committed_arrays_on_different_devices_are_refused(client, committed, name, where):
    function, kernel = FAMILIES[name]
    other = client.put(Y, mesh=OTHERS[where], spec=sc.P(None, "x"))
    x, y = client.xp.positive(committed), client.xp.positive(other)
    client.synchronize()
    assert (x.spec, y.spec) == (sc.P("a", "b"), sc.P(None, "x"))
    with pytest.raises(sc.ShardingError, match=rf"{kernel}.*set the mesh of the call|is on .* and .* on ") as refused:
        function(client.xp, x, y).get()  # by the client, or by the server for operands that are pending
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
def test_elementwise_results_are_sharded_as_the_largest_operand(client, shape, spec, other_shape, other_spec, expected):
    x, y = np.ones(shape), np.full(other_shape, 2.0)
    result = client.xp.add(client.put(x, mesh=MESH, spec=spec), client.put(y, mesh=MESH, spec=other_spec))
    assert result.spec == expected
    np.testing.assert_array_equal(result.get(), x + y)

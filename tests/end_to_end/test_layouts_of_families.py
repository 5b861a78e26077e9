"""Every family of functions keeps the layouts of the tutorial on distributed arrays, and takes others on request."""

import numpy as np
import pytest

import shardcall as sc
from shardcall import P

MESH, ONE = sc.Mesh(a=4, b=2), sc.Mesh(a=1)
X = np.random.default_rng(3).normal(size=(18, 10))  # no mesh axis divides them all


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


FLATTENED = {
    "running sum": np.cumsum,
    "running product": lambda x: np.cumprod(x / 3),
    "repeat": lambda x: np.repeat(x, 2),
    "roll": lambda x: np.roll(x, 33),
    "join": lambda x: np.concatenate([x, x[:5, 1]], axis=None),
}


@pytest.mark.parametrize("name", FLATTENED)
@pytest.mark.parametrize("spec", [P("a", None), pytest.param(P("a", "b"), marks=pytest.mark.long)], ids=str)
def test_flattened_arrays_stay_sharded(client, name, spec):
    result = FLATTENED[name](client.put(X, mesh=MESH, spec=spec))
    assert any(result.spec)
    expected = FLATTENED[name](X)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.get(), expected, rtol=1e-9, atol=1e-12)

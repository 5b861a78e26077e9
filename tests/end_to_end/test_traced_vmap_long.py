"""The tests of `test_traced_vmap.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_traced_vmap import RANDOM, W, X

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


def loss(params, x):
    return np.mean(np.tanh(x @ params["w"] + params["b"]) ** 2)


def slopes(params, x):
    """The derivatives of `loss` of one row, by hand."""
    hidden = np.tanh(x @ params["w"] + params["b"])
    back = 2 * hidden * (1 - hidden**2) / hidden.size
    return np.outer(x, back), back


@pytest.mark.parametrize("spec", [("x", None), (None, "x")])
def test_gradients_per_example(client, spec):
    params, x = {"w": W, "b": RANDOM.normal(size=7)}, client.put(X, mesh={"x": 4}, spec=spec)
    row = client.vmap(client.grad(loss), in_axes=(None, 0))(params, x)
    expected = [slopes(params, row) for row in X]
    assert np.allclose(row["w"].get(), np.stack([by_w for by_w, _ in expected]), rtol=1e-12)
    assert np.allclose(row["b"].get(), np.stack([by_b for _, by_b in expected]), rtol=1e-12)
    total = client.grad(lambda params, x: client.vmap(loss, in_axes=(None, 0))(params, x).sum())(params, x)
    assert np.allclose(total["w"].get(), sum(by_w for by_w, _ in expected), rtol=1e-12)


def test_seeds_may_be_mapped(client):
    drawn = client.vmap(lambda seed: client.xp.normal(seed, 5))(np.arange(3))
    assert np.array_equal(drawn.get(), np.stack([client.normal(seed, 5).array for seed in range(3)]))

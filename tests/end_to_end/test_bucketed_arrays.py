"""Arrays with one axis rounded up: results are NumPy's."""

import numpy as np
import pytest

import shardcall as sc

MESH = sc.Mesh(x=8)
WEIGHTS = np.random.default_rng(5).integers(-4, 5, (4, 3)).astype(float)


def table(length, dtype=float):
    return np.random.default_rng(length).integers(-50, 50, (length, 4)).astype(dtype)


def same(ours, expected):
    assert (ours.shape, ours.dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(ours.get(), expected, rtol=1e-12, atol=1e-12, equal_nan=True)


FUNCTIONS = {
    "arithmetic": lambda x: (2 - x * x) / 3 + abs(x),
    "a row and a column": lambda x: x - x.mean(axis=0) > x[:, 1:2],
    "an infinity in the padding": lambda x: (1 / (x + 0.5)).sum(axis=0),
    "functions": lambda x: np.where(np.isnan(np.sqrt(x)), 0, np.clip(x, -3, None)),
    "reductions": lambda x: np.stack([x.sum(0), x.mean(0), x.std(0), x.max(0), x.min(0), (1 + x / 1e4).prod(0)]),
    "of all": lambda x: np.stack([x.sum(), x.max(), x.var(), (x > -60).all().astype(float)]),
    "beside the axis": lambda x: x.sum(axis=1, keepdims=True) + x,
    "indices": lambda x: np.stack([x.argmax(0), x.argmin(axis=0)]),
    "the flattened index": lambda x: x.argmin(),
    "running sums": lambda x: x.cumsum(axis=0),
    "sorted": lambda x: np.sort(x, axis=0),
    "sorted beside": lambda x: np.sort(x, axis=1),
    "positions": lambda x: np.argsort(x[:, 0], kind="stable"),
    "rows of a product": lambda x: x @ WEIGHTS,
    "a sum of products": lambda x: x.T @ x,
    "a vector": lambda x: x[:, 2] @ x,
    "a column in place": lambda x: x.T[1:3, None],
    "an element": lambda x: x[len(x) - 1],
    "another type": lambda x: x.astype(np.int32) % 7,
}


def test_functions_of_the_values_without_the_padding_are_numpys(client):
    x = table(57)
    with np.errstate(all="ignore"):
        h = client.bucket(x, mesh=MESH)
        assert (h.shape, h.padded.shape) == ((57, 4), (60, 4))
        for function in FUNCTIONS.values():
            same(function(h), function(x))
    h[5:9], h[-1, 0] = 1, 77
    x[5:9], x[-1, 0] = 1, 77
    same(np.concatenate([h, x[:9]])[1:], np.concatenate([x, x[:9]])[1:])


@pytest.mark.parametrize("call", ["h + np.ones((60, 4))", "h @ h", "h[57]", "h.sum(axis=2)"])
def test_padding_makes_no_call_right(client, call):
    with pytest.raises((ValueError, IndexError)):
        eval(call, {"np": np, "h": client.bucket(table(57), mesh=MESH)})
    with pytest.raises(np.exceptions.AxisError):
        client.bucket(table(5), axis=2)

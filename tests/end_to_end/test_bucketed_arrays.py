"""Arrays with one axis rounded up, and elements of masks, which are computed so: results are NumPy's."""

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


OF_ELEMENTS = {
    "arithmetic": lambda x, m: x[m] ** 2 / 3 + x[m] - 1,
    "a mask of them": lambda x, m: x[m][x[m] > 7],
    "functions": lambda x, m: np.where(x[m] > 0, np.sqrt(abs(x[m])), -1),
    "exact reductions": lambda x, m: np.stack(
        [x[m].min(), x[m].argmax(), np.count_nonzero(x[m] > 0), (x[m] < 9).any()]
    ),
    "other reductions": lambda x, m: x[m].sum() + x[m].mean(),
    "sorted": lambda x, m: np.sort(x[m])[::-1],
    "rows": lambda x, m: x[m[:, 0]] * 2 + x[m[:, 0], :1],
    "a mask of rows": lambda x, m: x[m[:, 0]][x[m[:, 0]] > 7],
    "taken where not 0": lambda x, m: x[:, 2][np.nonzero(x[:, 1] > 0)[0]],
    "joined with others": lambda x, m: np.concatenate([x[m], x[:, 0], x[~m]]),
    "integers to powers": lambda x, m: (2 ** abs(x[m].astype(int) % 5)) ** 2,
}


def changes(x, m):
    x[m] = x[m] * 3 + 1
    x[m[:, 1]] = x[m[:, 1]] - x[m[:, 1], :1]
    x[np.nonzero(m)] = 5
    x[x[:, 3] > 0, 1] += 2
    elements, negative = x[m], x[x < 0]
    elements += 1
    np.multiply(elements, elements, out=elements)
    elements[1:3], part = -7, elements[2:9]
    part *= 2
    x[x < 0] = negative - 3
    return np.concatenate([x.ravel(), elements, elements + 1, part])


def check_elements(client, names, above):
    x = table(41)
    for name in names:
        if above < 100 or "reduction" not in name:
            h = client.put(x, mesh=MESH)
            same(OF_ELEMENTS[name](h, h > above), OF_ELEMENTS[name](x, x > above))
    if above < 100:
        same(changes(client.put(x, mesh=MESH), client.put(x > above)), changes(x, x > above))


def test_elements_of_masks_are_numpys(client):
    check_elements(client, ("arithmetic", "a mask of them", "exact reductions"), 3)

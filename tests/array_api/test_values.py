"""Results of functions of the array API standard 2024.12 whose keywords have rules of their own: they are NumPy's."""

import numpy as np
import pytest

RANDOM = np.random.default_rng(35)
X = RANDOM.normal(size=(4, 3))
Z = RANDOM.normal(size=(4, 6)) + 1j * RANDOM.normal(size=(4, 6))
K = RANDOM.integers(-3, 3, (4, 3))
ARRAYS = {"x": X, "z": Z, "k": K, "ascending": np.sort(X.ravel()), "m": X > 0}


def searching(xp, x, k, ascending, m, **_):
    yield from (xp.argmax(k), xp.argmax(k, axis=0), xp.argmin(k, axis=-1, keepdims=True), xp.count_nonzero(k, axis=0))
    yield from (xp.count_nonzero(k, axis=(0, 1), keepdims=True), xp.where(m, x, k), xp.where(m[:, :1], 1.5, k))
    yield from (xp.searchsorted(ascending, x), xp.searchsorted(ascending, ascending[1:4], side="right"))
    yield xp.searchsorted(xp.flip(ascending), x[0], sorter=xp.flip(xp.arange(12)))
    yield from (xp.take(k, xp.asarray([2, 0, 2]), axis=1), xp.take(k[0], xp.asarray([1, 1])))
    yield from (xp.take_along_axis(x, xp.argsort(x)), xp.sort(k, axis=0))
    yield from (xp.take_along_axis(x, xp.asarray([[1], [0], [2], [1]]), axis=1), xp.argsort(k, axis=0, stable=True))


def statistics(xp, x, k, z, m, **_):
    yield from (xp.cumulative_sum(k, axis=0), xp.cumulative_sum(x[0], include_initial=True))
    yield from (xp.cumulative_prod(k, axis=1), xp.cumulative_prod(x, axis=-1, include_initial=True))
    yield from (xp.cumulative_sum(m, axis=0, dtype=xp.float32), xp.max(k, axis=0), xp.min(x))
    yield from (xp.mean(x, axis=-1, keepdims=True), xp.mean(z), xp.prod(k, axis=(0, 1)), xp.sum(k, dtype=xp.float32))
    yield from (xp.sum(z, axis=0), xp.std(x, axis=0, correction=1), xp.var(x, correction=1.5), xp.sum(x, axis=()))
    yield from (xp.all(m, axis=0), xp.any(m, axis=1, keepdims=True), xp.all(k), xp.any(z, axis=()), xp.diff(x))
    yield from (xp.diff(k, axis=0, n=2), xp.diff(x[0], prepend=x[1, :1], append=x[2, :2]))
    empty = x[:0]
    yield from (xp.sum(empty), xp.prod(empty, axis=0), xp.all(empty, axis=1), xp.any(empty), xp.concat([empty, x]))
    yield from (xp.clip(k, -1, 1), xp.clip(x, max=0.5), xp.clip(x, x[:1], None), xp.round(x), xp.sign(z))


def indices(xp, x, k, m, **_):
    yield from (x[1], x[-1, 2], x[()], x[...], x[1:3], x[:, ::-2], x[3:0:-1], x[..., 0], x[None], x[:, None, 1], x[5:])
    yield from (x[-2:], x[:-9], x[xp.asarray([2, 0, -1])], x[xp.asarray([[0], [1]]), xp.asarray([1, 2])])
    yield x[2, xp.asarray([0, 0])]


AREAS = (searching, statistics, indices)


def traced(client, area, computed):
    """Gives a traced function that returns the results of an area, joined by type: a program has 64 at most."""

    @client.jit
    def run(arrays):
        computed[:] = [client.xp.asarray(item) for item in area(client.xp, **arrays)]
        kinds = {item.dtype for item in computed}
        joined = {kind: [client.xp.reshape(item, (-1,)) for item in computed if item.dtype == kind] for kind in kinds}
        return {kind.name: client.xp.concat(item) for kind, item in joined.items()}

    return run


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.__name__)
def test_types_and_shapes_are_numpys(client, area):
    computed = []
    traced(client, area, computed).trace(ARRAYS)
    expected = [np.asarray(item) for item in area(np, **ARRAYS)]
    assert [(i, x.dtype, x.shape) for i, x in enumerate(computed)] == [
        (i, x.dtype, x.shape) for i, x in enumerate(expected)
    ]


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.__name__)
def test_values_are_numpys(client, area):
    flat = {kind: item.get() for kind, item in traced(client, area, [])(ARRAYS).items()}
    for i, expected in enumerate(map(np.asarray, area(np, **ARRAYS))):
        kind, size = expected.dtype.name, expected.size
        ours, flat[kind] = flat[kind][:size].reshape(expected.shape), flat[kind][size:]
        tolerance = 1e-5 if expected.dtype in (np.float32, np.complex64) else 1e-12
        np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance, err_msg=f"result {i}")

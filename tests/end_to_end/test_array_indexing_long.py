"""The tests of `test_array_indexing.py` that take long."""

import numpy as np
import pytest
from end_to_end.test_array_indexing import SPECS, X, same
from pairs import pairs_of

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module", params=SPECS, ids=str)
def h(client, request):
    return client.put(X, mesh=sc.Mesh(x=4, y=2), spec=request.param)


def test_a_loop_with_an_index_compiles_once(server_factory):
    with sc.connect(server_factory(why="its programs are counted").address) as client:
        h, before = client.put(X, mesh=sc.Mesh(x=2)), 0
        for k in range(13):
            assert float(h[k].sum()) == pytest.approx(X[k].sum())
            if k == 1:  # the first calls may be recorded otherwise than those of a loop
                client.synchronize()
                before = client.usage().programs
        assert client.usage().programs == before


FUNCTIONS = {
    "reshape": lambda x: np.reshape(x, (6, -1)),
    "ravel": lambda x: np.ravel(x),  # noqa: PLW0108
    "concatenate": lambda x: np.concatenate([x, X, x[:2]]),
    "concatenate flat": lambda x: np.concatenate([x, X], axis=None),
    "stack": lambda x: np.stack([x, x], axis=1),
    "expand_dims": lambda x: np.expand_dims(x, (0, -1)),
    "squeeze": lambda x: np.squeeze(x[:1]),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 13, 6, 5)),
    "flip": lambda x: np.flip(x, axis=0),
    "astype": lambda x: np.astype(x, np.float32),
    "tile": lambda x: np.tile(x, 2),
    "repeat": lambda x: np.repeat(x, 3, axis=1),
    "tril": lambda x: np.tril(x, k=1),
    "triu": lambda x: np.triu(x),  # noqa: PLW0108
    "diagonal": lambda x: np.diagonal(x, 1, 1, 2),
    "pad": lambda x: np.pad(x, ((1, 2), (0, 0), (3, 1)), constant_values=7.0),
    "pad by the edge": lambda x: np.pad(x, 2, mode="edge"),
    "sort": lambda x: np.sort(x, axis=0),
    "argsort": lambda x: np.argsort(x, axis=1, stable=True),
    "take": lambda x: np.take(x, [4, 0], axis=1),
    "nonzero": lambda x: np.nonzero(x > 1)[1],
    "where of a condition": lambda x: np.where(x > 1)[2],
    "argwhere": lambda x: np.argwhere(x > 1),
    "flatnonzero": lambda x: np.flatnonzero(x > 1),
    "compress": lambda x: np.compress(X[0, :, 0] > 0, x, axis=1),
    "compress by one on the mesh": lambda x: np.compress(x[:, 0, 0] > 0, x, axis=0),
    "extract": lambda x: np.extract(x > 1, x),
    "unique": lambda x: np.unique(np.round(x)),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(X, axis=1), axis=1),
}


@pytest.mark.parametrize(("h", "name"), pairs_of(SPECS, [*FUNCTIONS]), indirect=["h"], ids=str)
def test_numpys_functions_of_shapes(h, name):
    same(FUNCTIONS[name](h), FUNCTIONS[name](X))


@pytest.mark.parametrize("h", [SPECS[2], *(pytest.param(s, marks=pytest.mark.long) for s in SPECS[:2])], indirect=True)
def test_methods_of_shapes(h):
    same(h.reshape(6, 65), X.reshape(6, 65))
    same(h.reshape((-1, 13)), X.reshape((-1, 13)))
    same(h.ravel(), X.ravel())
    same(h.flatten(), X.flatten())
    same(h[:1].squeeze(), X[:1].squeeze())
    same(h.astype("float32"), X.astype("float32"))
    same(h.take([1, 2], axis=2), X.take([1, 2], axis=2))
    same(h.repeat(2), X.repeat(2))
    same(h.argsort(0), X.argsort(0, stable=True))
    same(h.diagonal(), X.diagonal())
    np.testing.assert_allclose(h.trace().get(), X.trace())


SETS = [
    np.random.default_rng(0).integers(0, 5, (6, 7)),
    np.array([1, np.nan, 2, -0.0, np.nan, 1, 0.0]),
    np.zeros(0),
]


@pytest.mark.parametrize("x", SETS, ids=["integers", "floats", "nothing"])
def test_elements_that_differ(client, x):
    h = client.put(x, mesh=sc.Mesh(x=3))
    for ours, expected in zip(np.unique(h, True, True, True), np.unique(x, True, True, True), strict=True):
        same(ours, expected)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        result = getattr(client.xp, name)(h)
        for ours, expected in zip(result, getattr(np, name)(x), strict=True):
            same(ours, expected)
    assert result._fields == ("values", "inverse_indices")
    same(np.unique_values(h), np.sort(np.unique_values(x)))

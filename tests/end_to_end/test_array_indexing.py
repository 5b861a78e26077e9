"""Indices of arrays on the mesh, and NumPy's functions that change their shapes, which equal NumPy's."""

import numpy as np
import pytest
from pairs import pairs_of

import shardcall as sc

X = np.random.default_rng(18).normal(size=(13, 6, 5))


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


SPECS = [sc.P("x"), sc.P(None, "x"), sc.P("y", None, "x")]


@pytest.fixture(scope="module", params=SPECS, ids=str)
def h(client, request):
    return client.put(X, mesh=sc.Mesh(x=4, y=2), spec=request.param)


def same(ours, expected):
    assert isinstance(ours, sc.RemoteArray)
    assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(ours.get(), expected)


INDICES = {
    "an integer": lambda x: x[3],
    "a negative integer": lambda x: x[-1, 2],
    "all integers": lambda x: x[1, 2, 3],
    "inner rows": lambda x: x[1:-1],
    "rows": lambda x: x[2:9, 1:],
    "steps": lambda x: x[::3, ::-1],
    "backwards": lambda x: x[10:2:-3],
    "none of them": lambda x: x[5:5],
    "beyond the end": lambda x: x[10:100],
    "an ellipsis": lambda x: x[..., 0],
    "a new axis": lambda x: x[:, None, 2:4],
    "all": lambda x: x[...],
    "a numpy integer": lambda x: x[np.int32(4)],
    "an array of indices": lambda x: x[np.array([3, 0, -1, 3])],
    "a list of indices of an axis": lambda x: x[:, [2, 1]],
    "a mask": lambda x: x[x > 0],
    "a mask of rows": lambda x: x[x[:, 0, 0] > 0],
    "indices of two axes apart": lambda x: x[np.array([[1], [2]]), :, [0, -1]],
    "indices on the mesh": lambda x: x[x.argmax(0)[0], 1],
    "a scalar on the mesh": lambda x: x[x.argmax(0)[0, 0]],
}


@pytest.mark.parametrize(("h", "name"), pairs_of(SPECS, [*INDICES]), indirect=["h"], ids=str)
def test_indices(h, name):
    same(INDICES[name](h), INDICES[name](X))


def test_a_slice_stays_sharded(client):
    u = client.put(X[:, :, 0], mesh=sc.Mesh(x=8), spec=sc.P("x", None))
    assert u[1:-1].spec == sc.P("x", None)
    assert u[:, 2].spec == sc.P("x")
    stencil = u[1:-1] + 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
    v = X[:, :, 0]
    np.testing.assert_allclose(stencil.get(), v[1:-1] + 0.25 * (v[2:] - 2 * v[1:-1] + v[:-2]))


def test_a_loop_with_an_index_compiles_once(server_factory):
    with sc.connect(server_factory().address) as client:
        h, before = client.put(X, mesh=sc.Mesh(x=2)), 0
        for k in range(13):
            assert float(h[k].sum()) == pytest.approx(X[k].sum())
            if k == 1:  # the first calls may be recorded otherwise than those of a loop
                client.synchronize()
                before = client.usage().programs
        assert client.usage().programs == before


def test_an_array_is_iterable(client):
    h = client.put(X[:3], mesh=sc.Mesh(x=2))
    for ours, expected in zip(h, X[:3], strict=True):
        same(ours, expected)
    with pytest.raises(TypeError):
        list(client.put(1.0))


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        (13, IndexError, "index 13 is out of bounds for axis 0 with size 13"),
        ((0, 0, 0, 0), IndexError, "too many indices"),
        (1.5, IndexError, "only integers, slices"),
        (slice(None, None, 0), ValueError, "step cannot be zero"),
        (X[0, :, 0] > 0, IndexError, "boolean index did not match indexed array along axis 0; size of axis is 13"),
        (([1, 2], [1, 2, 3]), IndexError, r"could not be broadcast together with shapes \(2,\) \(3,\)"),
        ((0, [1, 6]), IndexError, "index 6 is out of bounds for axis 1 with size 6"),
    ],
)
def test_wrong_indices_are_refused(h, key, error, says):
    with pytest.raises(error, match=says):
        h[key]


def test_indices_out_of_range_are_refused(client):
    with pytest.raises(IndexError, match="index 13 is out of bounds"):
        client.put(X)[np.array([0, 13])]
    h = client.put(X, mesh=sc.Mesh(x=2))
    with pytest.raises(IndexError, match="an index that the axis of 13 elements does not have"):
        h[client.put(np.array([0, 13]), mesh=sc.Mesh(x=2))].get()
    with pytest.raises(sc.IndexOutOfRangeError, match="take_at"):
        (h[client.put(np.array([0, -14]), mesh=sc.Mesh(x=2)), np.array([0, 1])] + 1).get()


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


def test_the_order_of_fortran_is_refused(h):
    with pytest.raises(TypeError, match=r"order='F'.* row-major order"):
        np.reshape(h, -1, order="F")


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


def test_indices_of_nothing_and_of_scalars(client):
    h, nothing = client.put(np.float64(3)), client.put(np.zeros((0, 3)), mesh=sc.Mesh(x=2))
    same(np.argwhere(h), np.argwhere(3.0))
    same(np.argwhere(nothing), np.argwhere(np.zeros((0, 3))))
    same(nothing[nothing > 0], np.zeros(0))
    same(h[()], np.array(3.0))
    same(h[None], np.array([3.0]))
    with pytest.raises(ValueError, match="no axes is not defined"):
        np.nonzero(h)
    with pytest.raises(ValueError, match="both x and y, or neither"):
        client.xp.where(h, h)


@pytest.mark.parametrize("shape", [(1, 37), (37, 1)], ids=str)
@pytest.mark.parametrize("spec", [sc.P("x"), sc.P(None, "x"), sc.P("x", "y")], ids=str)
def test_every_device_has_the_elements_of_an_axis_of_one_element(client, shape, spec):
    x = np.random.default_rng(19).normal(size=shape)
    mesh = sc.Mesh(x=4, y=2)
    key = (0,) if shape[0] == 1 else (slice(None), -1)
    others = client.put(np.zeros(37), mesh=mesh, spec=sc.P("y"))  # each device adds what it has
    same(others + client.put(x, mesh=mesh, spec=spec)[key], x[key])

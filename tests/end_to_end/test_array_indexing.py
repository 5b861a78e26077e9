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


def test_the_order_of_fortran_is_refused(h):
    with pytest.raises(TypeError, match=r"order='F'.* row-major order"):
        np.reshape(h, -1, order="F")


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

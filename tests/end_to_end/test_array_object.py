"""The array object of the Python array API standard 2024.12: `RemoteArray`, and `Result` of either kind."""

import numpy as np
import pytest

import shardcall as sc

F = np.random.default_rng(18).normal(size=(4, 4))
FORMS = ("on the mesh", "result", "kept result")


@pytest.fixture(scope="module")
def client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module", params=FORMS)
def make_array(client, request):
    """Makes an array of a kind with the values of one of this process."""

    def make(x):
        h = client.put(x, mesh=sc.Mesh(x=2)) if np.ndim(x) else client.put(x, mesh=sc.Mesh(x=1))
        if request.param == "on the mesh":
            return h
        return client.reshard(h, keep=request.param == "kept result")

    return make


def values(ours):
    return ours.get() if hasattr(ours, "get") else np.asarray(ours)


def same(ours, expected):
    if isinstance(expected, tuple):
        for one, other in zip(ours, expected, strict=True):
            same(one, other)
        return
    expected = np.asarray(expected)
    np.testing.assert_allclose(values(ours), expected, rtol=1e-12)
    assert values(ours).dtype == expected.dtype


def test_the_device_and_the_namespace(client, make_array):
    ours = make_array(F)
    assert isinstance(hash(ours.device), int)
    assert ours.device == make_array(F).device
    same(ours.to_device(ours.device), F)
    xp = ours.__array_namespace__(api_version="2024.12")
    same(xp.sum(ours), F.sum())
    assert ours.__dlpack_device__() == (1, 0)
    with pytest.raises(ValueError, match="stream"):
        ours.to_device(ours.device, stream=3)


def test_dlpack_copies(server, client):
    with sc.connect(server.address) as copying:
        h = copying.put(F)
        same(np.from_dlpack(h), F)
        assert copying.statistics().implicit_gets == 1
        with pytest.raises(BufferError, match="DLPack has a copy"):
            np.from_dlpack(h, copy=False)
    with pytest.raises(TypeError, match="implicit_get='error'"):
        np.from_dlpack(client.put(F))


def test_python_protocols(client):
    h = client.put(F, mesh=sc.Mesh(x=2))
    for ours, expected in zip(reversed(h), reversed(F), strict=True):
        same(ours, expected)
    for ours, expected in zip(list(h), list(F), strict=True):
        same(ours, expected)
    same(round(h, 1), F.round(1))
    assert format(h) == str(h)
    with pytest.raises(TypeError, match=r"format '.2f' is for one number"):
        format(h, ".2f")
    assert [10, 20, 30][client.put(np.int8(2))] == 30
    assert h.astype("float64", copy=False) is h
    same(h.astype("float32", copy=False), F.astype("float32"))
    for one, other in zip(h.nonzero(), F.nonzero(), strict=True):
        same(one, other)
    same(h.compress(F[0] > 0, 1), F.compress(F[0] > 0, 1))


@pytest.mark.parametrize("name", ["byteswap", "dump", "getfield", "tofile", "ctypes", "data"])
def test_attributes_that_need_the_values_name_get(client, name):
    with pytest.raises(AttributeError, match=rf"'RemoteArray' object has no attribute '{name}'; .* get\(\)\.{name},"):
        getattr(client.put(F), name)
    assert not hasattr(client.put(F), "no_such")


def test_elements_are_row_major(client):
    h = client.put(F)
    assert h.itemsize == F.itemsize
    for method in ("ravel", "flatten", "copy"):
        same(getattr(h, method)(order="A"), getattr(F, method)(order="C"))
        with pytest.raises(TypeError, match="order='F' and arrays on the mesh are in row-major order"):
            getattr(h, method)(order="F")
    with pytest.raises(TypeError, match="order='F'"):
        h.reshape(-1, order="F")


@pytest.mark.parametrize("value", [np.float64(1e300), np.int64(3), np.ones(4)])
def test_operators_that_assign_keep_the_type_as_numpy_does(client, value):
    x, h = F.astype(np.float32), client.put(F.astype(np.float32))
    with np.errstate(over="ignore"):
        x += value
    h += value
    same(h, x)

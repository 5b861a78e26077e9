"""Rules of the array API standard 2024.12 on copies, devices, exchange, indices, sets, sorts and Python's numbers."""

import operator

import numpy as np
import pytest

import shardcall as sc

X = np.array([[3.0, 1.0, 2.0], [0.5, 3.0, 1.0]])


@pytest.fixture(scope="module")
def private_client(server):
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture(scope="module")
def xp(private_client):
    return private_client.xp


@pytest.fixture(scope="module")
def x(private_client):
    return private_client.put(X, mesh=sc.Mesh(x=2))


def same(ours, expected):
    np.testing.assert_array_equal(ours.get(), expected, strict=True)


def test_copies(xp, x):
    for copied in (xp.asarray(x, copy=True), xp.astype(x, x.dtype), xp.from_dlpack(x, copy=True)):
        assert copied is not x
        copied[0, 0] = 9.0
        assert float(copied[0, 0]) == 9
    assert xp.asarray(x) is xp.asarray(x, copy=False) is xp.astype(x, x.dtype, copy=False) is xp.from_dlpack(x) is x
    assert xp.asarray(x, dtype=xp.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        xp.asarray(x, dtype=xp.float32, copy=False)
    same(x, X)


def test_devices(xp, x):
    device = xp.__array_namespace_info__().default_device()
    computed = (xp.zeros(2, device=device), xp.asarray(X, device=device), xp.full_like(x, 1, device=device))
    more = (xp.arange(3, device=device), xp.linspace(0, 1, 3, device=device), xp.eye(2, device=device))
    last = (xp.from_dlpack(x, device=device), xp.astype(x, xp.int8, device=device), xp.fft.fftfreq(4, device=device))
    for array in (*computed, *more, *last, x):
        assert array.device == device
        assert array.to_device(device).device == device
    for create in (lambda: xp.zeros(2, device="cpu"), lambda: xp.asarray(X, device=1), lambda: x.to_device("gpu")):
        with pytest.raises(ValueError, match="the only device is 'mesh'"):
            create()


def test_exchange(client, private_client):
    x = client.put(X)
    assert x.__dlpack_device__() == (1, 0)
    for keywords in ({}, {"stream": None}, {"max_version": (1, 0)}, {"dl_device": (1, 0), "copy": True}):
        assert x.__dlpack__(**keywords) is not None
    for dtype in ("int8", "uint64", "float32", "complex128", "bool"):
        values = np.array([0, 1, 2], dtype)
        np.testing.assert_array_equal(np.from_dlpack(client.put(values)), values, strict=True)
    with pytest.raises(BufferError):
        x.__dlpack__(copy=False)
    same(private_client.xp.from_dlpack(X), X)
    assert x.__array_namespace__(api_version="2024.12").__array_api_version__ == "2024.12"
    with pytest.raises(ValueError, match="2099"):
        x.__array_namespace__(api_version="2099.12")


def test_nothing_is_equal_to_nan_in_sets(xp, private_client):
    values = np.array([[2.0, np.nan, -0.0], [np.nan, 2.0, 0.0]])
    computed = xp.unique_all(private_client.put(values))
    assert computed._fields == ("values", "indices", "inverse_indices", "counts")
    assert [item.dtype.name for item in computed] == ["float64", "int64", "int64", "int64"]
    elements, counts = computed.values.get(), computed.counts.get()
    np.testing.assert_array_equal(np.sort(elements), [0, 2, np.nan, np.nan])
    assert [*counts[np.argsort(elements)]] == [2, 2, 1, 1]
    assert computed.inverse_indices.shape == values.shape
    np.testing.assert_array_equal(elements[computed.inverse_indices.get()], values)
    np.testing.assert_array_equal(values.ravel()[computed.indices.get()], elements)


def test_positions_and_masks(xp, private_client, x):
    for computed, expected in zip(xp.nonzero(x > 1), np.nonzero(X > 1), strict=True):
        same(computed, expected)
    same(x[x > 1], X[X > 1])  # row by row
    same(x[xp.asarray([True, False])], X[:1])
    same(x[xp.asarray(True)], X[None])
    assert x[x > 9].shape == (0,)
    same(xp.repeat(x, np.array([1, 0, 2]), axis=1), np.repeat(X, [1, 0, 2], axis=1))
    with pytest.raises(TypeError, match="implicit_get='error'"):
        xp.repeat(x, xp.asarray([1, 0, 2]), axis=1)
    y = private_client.put(X)
    y[y > 2] = 0.0
    y[..., 0] = xp.asarray([7.0, 8.0])
    y[1, 1:] = 5
    same(y, np.array([[7.0, 1.0, 2.0], [8.0, 5.0, 5.0]]))
    for key in (2, (0, 3), (0, 0, 0), (slice(None), -4)):
        with pytest.raises(IndexError):
            x[key]


def test_pythons_numbers(xp):
    numbers = [(True, bool, True), (-7, int, -7), (2.5, float, 2.5), (1 - 2j, complex, 1 - 2j), (3, float, 3.0)]
    numbers += [(2, complex, 2 + 0j), (0.0, bool, False), (np.nan, bool, True), (2.75, int, 2)]
    for value, kind, expected in numbers:
        computed = kind(xp.asarray(value))
        assert (type(computed), computed) == (kind, expected)
    assert operator.index(xp.asarray(3)) == 3
    refused = [(np.nan, int, ValueError), (np.inf, int, OverflowError), (1j, float, TypeError), (1j, int, TypeError)]
    refused += [(2.0, operator.index, TypeError), ([1, 2], bool, ValueError), ([1.0, 2.0], float, TypeError)]
    for value, kind, error in refused:
        with pytest.raises(error):
            kind(xp.asarray(value))


def test_what_the_standard_refuses(xp, x):
    k = xp.asarray([[1, 2, 3]])
    for error, call in (
        (TypeError, lambda: xp.bitwise_and(x, x)),
        (TypeError, lambda: x << 1),
        (TypeError, lambda: k & 2.5),
        (OverflowError, lambda: xp.asarray([1], dtype=xp.int8) + 300),
        (ValueError, lambda: x + xp.ones(2)),
        (ValueError, lambda: xp.broadcast_to(x, (3, 3))),
        (ValueError, lambda: xp.concat([x, xp.ones((2, 3, 1))])),
        (ValueError, lambda: xp.squeeze(x, 0)),
        (ValueError, lambda: xp.reshape(x, (4, 2))),
        (ValueError, lambda: xp.max(xp.zeros((0,)))),
        (ValueError, lambda: xp.argmin(xp.zeros((2, 0)), axis=1)),
        (ValueError, lambda: xp.matmul(x, x)),
        (ValueError, lambda: xp.linalg.inv(x)),
        (ValueError, lambda: xp.linalg.qr(x, mode="full")),
        (ValueError, lambda: xp.tensordot(x, x, axes=3)),
        (ValueError, lambda: xp.meshgrid(x[0], x[0], indexing="xx")),
        (ValueError, lambda: xp.searchsorted(x[0], x, side="middle")),
        (ValueError, lambda: xp.fft.fft(x, norm="none")),
        (np.exceptions.AxisError, lambda: xp.sum(x, axis=2)),
        (np.exceptions.AxisError, lambda: xp.flip(x, axis=-3)),
        (ValueError, lambda: xp.sum(x, axis=(0, 0))),
    ):
        with pytest.raises(error):
            call()

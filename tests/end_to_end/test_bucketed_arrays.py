"""Arrays with one axis rounded up: results are NumPy's at every length, and many lengths share programs."""

import numpy as np
import pytest
from servers import running_server

import shardcall as sc
from shardcall._src.device_arrays.bucketed_array import bucket_size

MESH = sc.Mesh(x=8)


@pytest.fixture(scope="module")
def client():
    """A client that refuses to copy arrays unless they are asked for, of a server whose programs can be counted."""
    with (
        # It compiles no programs to compare.
        running_server("--strategy", "fixed", why="its programs are counted") as server,
        sc.connect(server.address, implicit_get="error", fuse=False) as client,
    ):
        yield client


def table(length, dtype=float):
    return np.random.default_rng(length).integers(-50, 50, (length, 4)).astype(dtype)


def same(ours, expected):
    assert (ours.shape, ours.dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(ours.get(), expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_joins_to_the_end_let_an_array_grow(client):
    x, h = table(3841), client.bucket(table(3841), mesh=MESH)
    for step in range(6):
        programs = client.usage().programs
        row = np.full((30, 4), float(step))
        x, h = np.concatenate([x, row]), np.concatenate([h, row])
        same(h, x)
    assert client.usage().programs == programs
    for _ in range(12):
        x, h = np.concatenate([x, row]), np.concatenate([h, row])
    assert h.padded.shape == (bucket_size(len(x)), 4)
    same(h, x)


def test_refusals_are_those_of_the_shape(client):
    h = client.bucket(table(3900), mesh=MESH)
    for function in (lambda x: x + np.ones((4096, 4)), lambda x: x @ x, lambda x: x[3900], lambda x: x.sum(axis=2)):
        with pytest.raises((ValueError, IndexError)):
            function(h)
    with pytest.raises(np.exceptions.AxisError):
        client.bucket(table(5), axis=2)
    with pytest.raises(TypeError):
        np.asarray(h)


def test_sizes():
    for length in range(1, 5000):
        size = bucket_size(length)
        assert length <= size <= max(length, length * 9 // 8)
    for power in range(3, 12):
        assert len({bucket_size(n) for n in range(2**power + 1, 2 ** (power + 1) + 1)}) == 8

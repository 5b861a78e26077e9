"""The tests of `test_bucketed_arrays.py` that take long: many lengths, which share programs."""

import copy

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_bucketed_arrays import FUNCTIONS, MESH, OF_ELEMENTS, WEIGHTS, check_elements, same, table
from servers import running_server

import shardcall as sc
from shardcall._src.device_arrays.bucketed_array import BucketedArray, bucket_size

pytestmark = pytest.mark.long

LENGTHS = [3841, 3842, 3900, 3901, 3950, 4000, 4033, 4064, 4095, 4096]  # all are rounded up to 4096


@pytest.fixture(scope="module")
def client():
    """A client that refuses to copy arrays unless they are asked for, of a server whose programs can be counted."""
    with (
        # It compiles no programs to compare.
        running_server("--strategy", "fixed", why="its programs are counted") as server,
        sc.connect(server.address, implicit_get="error", fuse=False) as client,
    ):
        yield client


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ten_lengths_are_one_program(client, name):
    function = FUNCTIONS[name]
    client.synchronize()
    wait_for(lambda: not client.usage().known_answers.pending)
    with np.errstate(all="ignore"):
        for length in LENGTHS:
            x = table(length)
            same(function(client.bucket(x, mesh=MESH)), function(x))
            if length == LENGTHS[0]:
                programs = client.usage().programs
    assert client.usage().programs == programs


@pytest.mark.parametrize("above", [-60, 3, 100])  # of all elements, of some, of none
def test_elements_of_masks_are_numpys(client, above):
    check_elements(client, OF_ELEMENTS, above)


def test_masks_of_many_counts_are_one_program(client):
    x = table(512)
    for count in (130, 131, 200, 255, 256):
        h, expected = client.put(x, mesh=MESH), x.copy()
        h[np.arange(512) < count], expected[:count] = -70, -70
        for a in (h, expected):
            a[a < -60] = a[a < -60] ** 2 - a[a < -60] / 7
        same(h, expected)
        client.synchronize()
        if count == 130:
            programs = client.usage().programs
    assert client.usage().programs == programs


def test_results_that_have_the_axis_are_bucketed(client):
    h = client.bucket(table(3900), mesh=MESH, spec=sc.P("x"))
    assert (h.shape, h.padded.shape, len(h), h.size) == ((3900, 4), (4096, 4), 3900, 15600)
    assert (h.spec, h.mesh.axis_names) == (sc.P("x", None), ("x",))
    for result in (h + 1, np.sin(h), h[7:], h.T, h @ WEIGHTS, h.cumsum(0), h.sum(axis=1), copy.copy(h), h > 1.5):
        assert isinstance(result, BucketedArray)
        assert result.padded.shape[result.bucket.axis] in (4096, bucket_size(3893))
    for result in (h.sum(axis=0), h[0], h.T @ h, np.flip(h, 0), np.median(h, axis=0)):
        assert isinstance(result, sc.RemoteArray)


@pytest.mark.parametrize(
    ("length", "axis"), [(17, 1), *((length, axis) for length in (0, 1, 2, 7, 9, 16, 100) for axis in (0, 1))]
)
def test_any_length_and_axis(client, length, axis):
    x = table(length) if axis == 0 else np.ascontiguousarray(table(length).T)
    h = client.bucket(x, axis)
    for function in (
        lambda x: x * x + 1,
        lambda x: x.sum(axis=0),
        lambda x: x.sum(axis=1),
        lambda x: x.T @ x,
        lambda x: x[1:],
        lambda x: x[:, 1:-1],
        np.cumsum,
        lambda x: np.flip(x, axis),
        lambda x: x[x > 0],
        lambda x: np.concatenate([x, x], axis),
    ):
        same(function(h), function(x))


def test_joins_to_the_end_let_an_array_grow(client):
    x, h = table(3841), client.bucket(table(3841), mesh=MESH)
    for step in range(6):
        client.synchronize()  # calls that no value needed may still be compiled
        programs = client.usage().programs
        row = np.full((30, 4), float(step))
        x, h = np.concatenate([x, row]), np.concatenate([h, row])
        same(h, x)
    client.synchronize()
    assert client.usage().programs == programs
    for _ in range(12):
        x, h = np.concatenate([x, row]), np.concatenate([h, row])
    assert h.padded.shape == (bucket_size(len(x)), 4)
    same(h, x)


def test_assignments_and_arrays_beside_it(client):
    x = table(3900, np.int64)
    h, other = client.bucket(x, mesh=MESH), client.put(x + 3, mesh=MESH)
    same(h * other, x * (x + 3))
    same(other - h, x + 3 - x)
    same(h + x, x + x)
    same(2 ** abs(h % 3), 2 ** abs(x % 3))
    kept = copy.copy(h)
    h[5:9] = 1
    h[-1, 0] = 77
    h[[3, 4]] = -8
    changed = x.copy()
    changed[5:9], changed[-1, 0], changed[[3, 4]] = 1, 77, -8
    same(h, changed)
    same(kept, x)
    h.delete()
    same(kept, x)
    assert client.delete(kept) == 1


def test_sizes():
    for length in range(1, 5000):
        assert length <= bucket_size(length) <= max(length, length * 9 // 8)
    for power in range(3, 12):
        assert len({bucket_size(n) for n in range(2**power + 1, 2 ** (power + 1) + 1)}) == 8

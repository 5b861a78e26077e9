"""Resident arrays: put, described, used, deleted."""

from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.filing import same
from end_to_end.processes import X

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(x=8)
ROWS = P("x", None)
LARGE = np.random.default_rng(3).standard_normal((1024, 130))  # 1 MiB and more: a segment, or a stream


TRANSPORTS = {
    "shared memory": {},
    "stream": {"shared_memory": False},
    "unary": {"shared_memory": False, "call_stream": False},
}


@pytest.fixture(params=TRANSPORTS.values(), ids=TRANSPORTS)
def either(server, request) -> Iterator[sc.Client]:
    """A client of each transport; each test leaves it without arrays."""
    with sc.connect(server.address, **request.param) as connected:
        yield connected
        assert connected.list() == []


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_an_array_that_was_put_is_described_and_fetched(either, x):
    with either.put(x, mesh=MESH, spec=ROWS) as there:
        assert (there.shape, there.dtype, there.nbytes) == (x.shape, x.dtype, x.nbytes)
        assert (there.mesh.axes, there.spec) == (MESH.axes, ROWS)
        assert there.device_bytes == x.nbytes
        same(there.get(), x)
        same(np.asarray(there), x)
        described = either.describe(there.handle)
        assert (described.type, described.spec, described.mesh, described.padded_shape) == (
            there.type,
            there.spec,
            there.mesh,
            there.padded_shape,
        )
        assert [array.handle for array in either.list()] == [there.handle]
    with pytest.raises(sc.ArrayLostError):
        either.get(there)
    with pytest.raises(sc.ArrayLostError) as caught:
        either.get(there.handle)
    assert caught.value.reason == "ARRAY_LOST"


def test_padding_and_copies_on_several_devices_count(client):
    with client.put(np.ones((13, 2)), mesh=MESH, spec=ROWS) as padded:
        assert padded.padded_shape == (16, 2)
        assert padded.device_bytes == 16 * 2 * 8
    with client.put(np.ones((13, 2)), mesh=MESH, spec=P(None, None)) as replicated:
        assert replicated.device_bytes == 8 * 13 * 2 * 8


def test_results_got_before_stay_as_they_are_when_memory_is_used_again(client):
    with client.put(LARGE, mesh=MESH) as there:
        first = there.get()
        first[0, 0] = np.inf  # the caller's own
        with client.put(LARGE + 1, mesh=MESH) as other:
            other.get()
        same(there.get(), LARGE)
        same(first[1:], LARGE[1:])


def test_clients_list_only_their_arrays_and_may_use_those_whose_handle_they_have(server):
    with sc.connect(server.address) as client, client.put(X, mesh=MESH, spec=ROWS) as ours:
        with sc.connect(server.address) as other:
            assert other.list() == []
            theirs = other.put(X + 1)
            assert [array.handle for array in client.list()] == [ours.handle]
            same(other.get(ours.handle), X)
            same(other.diff(other.describe(ours.handle), axis=0).array, np.diff(X, axis=0))
        with pytest.raises(sc.ArrayLostError):  # closed
            client.get(theirs.handle)
        same(ours.get(), X)

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


def test_deleting_returns_the_number_of_deleted_arrays(client):
    first, second = client.put(X), client.put(X)
    assert client.delete(first, second, first.handle) == 2
    assert client.delete(first.handle, second.handle) == 0
    first.delete()
    assert client.list() == []


def test_both_operands_of_a_product_may_be_there_and_may_be_the_same(either):
    x = np.arange(64.0).reshape(8, 8)
    y = np.arange(24.0).reshape(8, 3)
    with either.put(x, mesh=MESH, spec=ROWS) as lhs, either.put(y, mesh=MESH, spec=P(None, None)) as rhs:
        same(either.matmul(lhs, rhs).array, x @ y)
        same(either.matmul(lhs, y).array, x @ y)
        same(either.matmul(x, rhs, mesh=MESH).array, x @ y)
        same(either.matmul(lhs, lhs).array, x @ x)


def test_many_stay_at_once_with_different_values(client):
    kept = [client.diff(X + i, axis=0, append=float(i), mesh=MESH, spec=ROWS, keep=True).array for i in range(20)]
    assert [array.handle for array in client.list()] == [array.handle for array in kept]
    for i, array in enumerate(kept):
        same(array.get(), np.diff(X + i, axis=0, append=float(i)))
    assert client.delete(*kept) == 20


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


def test_an_array_that_is_computed_repeatedly_needs_the_memory_of_few(server):
    with sc.connect(server.address) as client:
        h = client.put(X, mesh=MESH, spec=ROWS)
        for _ in range(5):
            h = client.diff(h, axis=0, append=0.0, keep=True).array
            assert len(client.list()) <= 2


def test_an_operand_that_was_deleted_by_another_client_is_named(server, client):
    gone = client.put(np.ones((4, 4)))
    with sc.connect(server.address) as other:
        assert other.delete(gone.handle) == 1
    with pytest.raises(sc.ArrayLostError, match=r"rhs is float64\[4,4\], which the mesh no longer has"):
        client.matmul(np.ones((4, 4)), gone)
    assert gone.lost


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_an_operand_that_is_there_brings_its_mesh_and_its_spec(either, x):
    mesh = sc.Mesh(a=4, b=2)
    with either.put(x, mesh=mesh, spec=P("b", "a")) as there:
        result = either.diff(there, axis=0)
        same(result.array, np.diff(x, axis=0))
        assert result.plan.mesh.axes == mesh.axes
        assert result.plan.operands[0].spec == P("b", "a")


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_results_that_stay_are_operands_of_the_next_call(either, x):
    with either.diff(x, axis=0, mesh=MESH, spec=ROWS, keep=True).array as once:
        assert (once.shape, once.dtype) == ((x.shape[0] - 1, x.shape[1]), x.dtype)
        with either.diff(once, axis=0, keep=True).array as twice:
            same(twice.get(), np.diff(np.diff(x, axis=0), axis=0))
            same(either.diff(twice, axis=0).array, np.diff(x, n=3, axis=0))
        same(once.get(), np.diff(x, axis=0))

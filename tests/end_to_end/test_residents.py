"""Arrays that stay on the mesh: put, used, told of, deleted, lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, details, mesh, operand, spec, tensor
from end_to_end.processes import X, holds_nothing, until

import shardcall as sc
from shardcall import P
from shardcall.v1 import array_pb2, array_service_pb2, array_service_pb2_grpc, kernel_service_pb2

MESH = sc.Mesh(x=8)
ROWS = P("x", None)
LARGE = np.random.default_rng(3).standard_normal((1024, 130))  # 1 MiB and more: a segment, or a stream
LEASE = b"lease of a test."


@pytest.fixture(params=["shared", "streamed"])
def either(request, client, streaming) -> Iterator[sc.Client]:
    """A client of each way; each test leaves it without arrays."""
    chosen = {"shared": client, "streamed": streaming}[request.param]
    yield chosen
    assert chosen.list() == []


@pytest.fixture
def arrays(server) -> Iterator[array_service_pb2_grpc.ArrayServiceStub]:
    """The service as it is, without a client that renews leases."""
    with grpc.insecure_channel(server.address) as channel:
        yield array_service_pb2_grpc.ArrayServiceStub(channel)


def put_request(array: np.ndarray, lease_id: bytes = LEASE, **header) -> array_service_pb2.PutArrayRequest:
    header = {"array": operand(array), **header}
    return array_service_pb2.PutArrayRequest(header=array_service_pb2.PutArrayHeader(lease_id=lease_id, **header))


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_an_array_that_was_put_is_told_of_and_comes_back(either, x):
    with either.put(x, mesh=MESH, spec=ROWS) as there:
        assert (there.shape, there.dtype, there.nbytes) == (x.shape, x.dtype, x.nbytes)
        assert (there.mesh.axes, there.spec) == (MESH.axes, ROWS)
        assert there.device_bytes == x.nbytes
        same(there.get(), x)
        same(np.asarray(there), x)
        told = either.describe(there.handle)
        assert (told.type, told.spec, told.mesh, told.padded_shape) == (
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


def test_deleting_tells_how_many_were_there(client):
    first, second = client.put(X), client.put(X)
    assert client.delete(first, second, first.handle) == 2
    assert client.delete(first.handle, second.handle) == 0
    first.delete()
    assert client.list() == []


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_an_operand_that_is_there_brings_its_mesh_and_its_spec(either, x):
    over = sc.Mesh(a=4, b=2)
    with either.put(x, mesh=over, spec=P("b", "a")) as there:
        result = either.diff(there, axis=0)
        same(result.array, np.diff(x, axis=0))
        assert result.plan.mesh.axes == over.axes
        assert result.plan.operands[0].spec == P("b", "a")


@pytest.mark.parametrize("shape", [(64, 8), (61, 9)], ids=["divided", "padded"])
@pytest.mark.parametrize(
    ("over", "split"),
    [
        (MESH, ROWS),
        (MESH, P(None, "x")),
        (MESH, P(None, None)),
        (sc.Mesh(x=1), ROWS),
        (sc.Mesh(x=3), ROWS),
        (sc.Mesh(a=2, b=4), P("b", "a")),
        (sc.Mesh(x=2, device_ids=[7, 5]), ROWS),
    ],
    ids=str,
)
@pytest.mark.parametrize("put", [P("x", None), P(None, "x"), P(None, None)], ids=str)
def test_an_operand_that_is_there_may_be_wanted_elsewhere(client, put, over, split, shape):
    x = np.random.default_rng(5).standard_normal(shape)
    with client.put(x, mesh=MESH, spec=put) as there:
        same(client.diff(there, axis=0, mesh=over, spec=split).array, np.diff(x, axis=0))
        same(there.get(), x)


def test_both_operands_of_a_product_may_be_there_and_may_be_the_same(either):
    x = np.arange(64.0).reshape(8, 8)
    y = np.arange(24.0).reshape(8, 3)
    with either.put(x, mesh=MESH, spec=ROWS) as lhs, either.put(y, mesh=MESH, spec=P(None, None)) as rhs:
        same(either.matmul(lhs, rhs).array, x @ y)
        same(either.matmul(lhs, y).array, x @ y)
        same(either.matmul(x, rhs, mesh=MESH).array, x @ y)
        same(either.matmul(lhs, lhs).array, x @ x)


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_results_that_stay_are_operands_of_the_next_call(either, x):
    with either.diff(x, axis=0, mesh=MESH, spec=ROWS, keep=True).array as once:
        assert (once.shape, once.dtype) == ((x.shape[0] - 1, x.shape[1]), x.dtype)
        with either.diff(once, axis=0, keep=True).array as twice:
            same(twice.get(), np.diff(np.diff(x, axis=0), axis=0))
            same(either.diff(twice, axis=0).array, np.diff(x, n=3, axis=0))
        same(once.get(), np.diff(x, axis=0))


def test_many_stay_at_once_each_with_its_own_values(client):
    kept = [client.diff(X + i, axis=0, append=float(i), mesh=MESH, spec=ROWS, keep=True).array for i in range(20)]
    assert [array.handle for array in client.list()] == [array.handle for array in kept]
    for i, array in enumerate(kept):
        same(array.get(), np.diff(X + i, axis=0, append=float(i)))
    assert client.delete(*kept) == 20


@pytest.mark.parametrize("over", [sc.Mesh(x=1), MESH], ids=["one device", "eight"])
@pytest.mark.parametrize("n", [0, 1])
def test_what_stays_has_no_memory_in_common_with_what_it_was_made_of(client, over, n):
    x = client.empty(LARGE.shape)
    x[...] = LARGE
    with (
        client.put(x, mesh=over, spec=ROWS) as there,
        client.diff(x, n=n, axis=0, mesh=over, spec=ROWS, keep=True).array as result,
        client.diff(there, n=n, axis=0, keep=True).array as again,
    ):
        x[...] = np.nan
        there_too = client.diff(there, n=n, axis=0)
        there.delete()
        for values in (result.get(), again.get(), there_too.array):
            same(values, np.diff(LARGE, n=n, axis=0))


@pytest.mark.parametrize("over", [sc.Mesh(x=1), MESH], ids=["one device", "eight"])
@pytest.mark.parametrize("split", [ROWS, P(None, "x")], ids=str)
def test_what_stays_keeps_its_bits_when_later_calls_reuse_the_memory(streaming, over, split):
    rows = 4096
    x = np.random.default_rng(6).standard_normal((rows, 64))
    with (
        streaming.put(x, mesh=over, spec=split) as there,
        streaming.diff(x, n=0, axis=0, mesh=over, spec=split, keep=True).array as kept,
    ):
        for value in (np.nan, -1.0):  # of the same size: into the same regions
            with streaming.put(np.full_like(x, value), mesh=over, spec=split):
                streaming.diff(np.full_like(x, value), n=0, axis=0, mesh=over, spec=split)
        same(there.get(), x)
        same(kept.get(), x)


def test_results_got_before_stay_as_they_are_when_memory_is_used_again(client):
    with client.put(LARGE, mesh=MESH) as there:
        first = there.get()
        first[0, 0] = np.inf  # the caller's own
        with client.put(LARGE + 1, mesh=MESH) as other:
            other.get()
        same(there.get(), LARGE)
        same(first[1:], LARGE[1:])


def test_an_operand_may_be_deleted_while_the_call_runs(own_server):
    x = np.ones((1500, 1500))
    server = own_server()
    with sc.connect(server.address) as client:
        there = client.put(x, mesh=MESH, spec=ROWS)
        client.compile("matmul", there, there)
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)  # the launch waits, and the deletion comes after it
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(client.matmul, there, there)
            until(lambda: client.usage().regions > 0)
            assert client.delete(there) == 1
            os.kill(worker, signal.SIGCONT)
            same(call.result(30).array, x @ x)
        until(lambda: holds_nothing(client))


def test_clients_see_their_own_arrays_and_may_use_those_whose_handle_they_have(server, client):
    with client.put(X, mesh=MESH, spec=ROWS) as ours:
        with sc.connect(server.address) as other:
            assert other.list() == []
            theirs = other.put(X + 1)
            assert [array.handle for array in client.list()] == [ours.handle]
            same(other.get(ours.handle), X)
            same(other.diff(other.describe(ours.handle), axis=0).array, np.diff(X, axis=0))
        with pytest.raises(sc.ArrayLostError):  # closed
            client.get(theirs.handle)
        same(ours.get(), X)


def test_a_mesh_that_restarts_loses_its_arrays_and_never_gives_others(own_server):
    server = own_server()
    with sc.connect(server.address) as client:
        before = client.put(X, mesh=MESH, spec=ROWS)
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGKILL)
        until(lambda: client.usage().arrays == 0)
        after = client.put(X + 1, mesh=MESH, spec=ROWS)  # the next mesh's first, as that was of the last
        for use in (before.get, lambda: client.describe(before), lambda: client.diff(before, axis=0)):
            with pytest.raises(sc.ArrayLostError) as caught:
                use()
            assert caught.value.reason == "ARRAY_LOST"
        same(after.get(), X + 1)
        assert [array.handle for array in client.list()] == [after.handle]
        after.delete()
        until(lambda: holds_nothing(client))


def test_a_lease_that_nobody_renews_ends_and_one_that_is_renewed_lasts(own_server):
    server = own_server("--lease-s", "1")
    with sc.connect(server.address) as client, grpc.insecure_channel(server.address) as channel:
        arrays = array_service_pb2_grpc.ArrayServiceStub(channel)
        kept = client.put(X)
        handle = arrays.PutArray(iter([put_request(X)]), timeout=10).array.handle
        until(lambda: client.usage().leases == 1, limit_s=5)
        with pytest.raises(grpc.RpcError) as caught:
            next(arrays.GetArray(array_service_pb2.GetArrayRequest(handle=handle), timeout=10))
        assert details(caught.value)["ErrorInfo"].reason == "ARRAY_LOST"
        assert not arrays.RenewLease(array_service_pb2.RenewLeaseRequest(lease_id=LEASE), timeout=10).found
        same(kept.get(), X)
        client.delete(kept)
        until(lambda: holds_nothing(client))


def test_arrays_that_the_caller_lost_are_deleted_and_closing_deletes_the_others(own_server):
    server = own_server("--lease-s", "1")
    with sc.connect(server.address) as observer:
        with sc.connect(server.address) as client:
            kept = client.put(X)
            client.put(X)
            until(lambda: observer.usage().arrays == 1, limit_s=10)
            same(kept.get(), X)
        until(lambda: holds_nothing(observer), limit_s=0.9)  # before the lease would end
    assert kept.lost


@pytest.mark.parametrize("flag", ["--max-resident-bytes", "--max-resident-bytes-per-lease"])
def test_arrays_beyond_the_limit_are_refused_until_others_are_deleted(own_server, flag):
    half = np.ones((1024, 80))  # 640 KiB
    server = own_server(flag, str(1 << 20))
    with sc.connect(server.address) as client:
        first = client.put(half, mesh=MESH, spec=ROWS)
        for refused in (
            lambda: client.put(half, mesh=MESH, spec=ROWS),
            lambda: client.put(half[:100], mesh=MESH, spec=P(None, None)),  # 8 copies
            lambda: client.diff(half, axis=0, mesh=MESH, spec=ROWS, keep=True),
        ):
            with pytest.raises(sc.ResourceExhaustedError) as caught:
                refused()
            assert caught.value.reason == "RESIDENT_LIMIT"
            assert client.usage().arrays == 1
        same(client.diff(first, axis=0).array, np.diff(half, axis=0))
        first.delete()
        with client.put(half, mesh=MESH, spec=ROWS) as second:
            same(second.get(), half)
        until(lambda: holds_nothing(client))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"mesh": mesh(x=9)}, "NOT_ENOUGH_DEVICES"),
        ({"mesh": mesh(0, 99, x=2)}, "INVALID_MESH"),
        ({"mesh": mesh(x=0)}, "INVALID_MESH"),
        ({"mesh": mesh(x=8), "spec": spec("y")}, "UNKNOWN_MESH_AXIS"),
        ({"mesh": mesh(x=8), "spec": spec("x", "x")}, "MESH_AXIS_REUSED"),
        ({"mesh": mesh(x=8), "spec": spec(None, None, "x")}, "SPEC_TOO_LONG"),
        ({"lease_id": b"short"}, "MALFORMED_REQUEST"),
        ({"array": kernel_service_pb2.Operand()}, "MALFORMED_REQUEST"),
        ({"array": kernel_service_pb2.Operand(type=tensor(2), inline={"data": bytes(15)})}, "SIZE_MISMATCH"),
        ({"array": kernel_service_pb2.Operand(type=tensor(2), resident={"handle": bytes(16)})}, "MALFORMED_REQUEST"),
        (
            {"array": kernel_service_pb2.Operand(type=tensor(2), segment={"segment_id": bytes(16)})},
            "SEGMENT_NOT_FOUND",
        ),
        (
            {
                "array": kernel_service_pb2.Operand(
                    type=tensor(2, element_type=array_pb2.ELEMENT_TYPE_BOOL), inline={"data": b"\1\2"}
                )
            },
            "INVALID_OPERAND",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_put_is_refused_and_leaves_nothing(client, arrays, header, reason):
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(iter([put_request(X, **header)]), timeout=10)
    assert details(caught.value)["ErrorInfo"].reason == reason
    assert not arrays.ListArrays(array_service_pb2.ListArraysRequest(lease_id=LEASE), timeout=10).arrays
    until(lambda: not client.usage().arrays and not client.usage().leases)


def test_a_truth_value_that_is_neither_is_refused_in_a_stream_too(client, arrays):
    kind = tensor(2 << 20, element_type=array_pb2.ELEMENT_TYPE_BOOL)
    streamed = put_request(X, array=kernel_service_pb2.Operand(type=kind, streamed={}))
    chunks = [chunk(0, 0, 1 << 20).chunk, array_pb2.TensorChunk(offset=1 << 20, data=bytes((1 << 20) - 1) + b"\2")]
    with pytest.raises(grpc.RpcError) as caught:
        arrays.PutArray(
            iter([streamed, *(array_service_pb2.PutArrayRequest(chunk=piece) for piece in chunks)]), timeout=10
        )
    assert details(caught.value)["ErrorInfo"].reason == "INVALID_OPERAND"
    until(lambda: not client.usage().arrays and not client.usage().regions)

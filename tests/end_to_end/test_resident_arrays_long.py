"""Resident arrays in every placement, at their limits, and when the mesh restarts or their lease ends."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import numpy as np
import pytest
from end_to_end.filing import same
from end_to_end.messages import EXHAUSTED, call, check, mesh, open_channel, operand
from end_to_end.processes import X, stopped, wait_for
from end_to_end.test_resident_arrays import MESH, ROWS
from end_to_end.test_resident_arrays_lost import LEASE, put_request, refusal
from servers import holds_nothing

import shardcall as sc
from shardcall import P
from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2, kernel_service_pb2_grpc

pytestmark = pytest.mark.long

PLACED = {"mesh": MESH, "spec": ROWS}


def test_arrays_beyond_the_limits_are_refused_unless_others_are_deleted(server_factory):
    half = np.ones((1024, 80))  # 640 KiB
    of_all, of_lease = str(3 << 19), str(1 << 20)
    server = server_factory(
        *("--max-resident-bytes", of_all, "--max-resident-bytes-per-client", of_all),
        *("--max-resident-bytes-per-lease", of_lease),
        why="its memory of arrays is small",
    )

    def is_refused_more(client: sc.Client) -> None:
        arrays = client.usage().arrays
        for refused in (
            lambda: client.put(half, **PLACED),
            lambda: client.put(half[:100], mesh=PLACED["mesh"], spec=P(None, None)),  # 8 copies
            lambda: client.diff(half, axis=0, **PLACED, keep=True),
        ):
            with pytest.raises(sc.ResourceExhaustedError) as caught:
                refused()
            assert caught.value.reason == "RESIDENT_LIMIT"
            assert client.usage().arrays == arrays

    def may_put_again(client: sc.Client) -> None:
        with client.put(half, **PLACED) as second:
            same(second.get(), half)

    with (
        sc.connect(server.address, shared_memory=False) as client,
        sc.connect(server.address, shared_memory=False) as other,
        sc.connect(server.address, shared_memory=False) as third,
    ):
        first = client.put(half, **PLACED)
        is_refused_more(client)  # by the limit of its lease
        same(client.diff(first, axis=0).array, np.diff(half, axis=0))
        with other.put(half, **PLACED):
            is_refused_more(third)  # by the limit of all leases together
            first.delete()
            may_put_again(client)
            may_put_again(third)
        wait_for(lambda: holds_nothing(client))


def test_a_list_that_no_message_holds_is_refused_and_its_arrays_are_there(server_factory):
    server = server_factory("--max-message-bytes", str(2 << 20), why="its messages are small")
    axes = mesh(**{letter * 64: 1 for letter in "abcdefghijklmnop"})
    x = np.arange(2.0**12).reshape((2,) * 12)
    request = kernel_service_pb2.ExecuteRequest(
        call=call("gradient", mesh=axes), operands=[operand(x)], keep_results=True, lease_id=LEASE
    )
    with open_channel(server.address) as channel:
        kernels = kernel_service_pb2_grpc.KernelServiceStub(channel)
        results = []
        while len(results) < 1100:  # each description has 2 KiB, most of it the names of axes
            results += kernels.Execute(request, timeout=120).results
        stub = array_service_pb2_grpc.ArrayServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ListArrays(array_service_pb2.ListArraysRequest(lease_id=LEASE), timeout=30)
        check(caught.value, EXHAUSTED, "CALL_TOO_LARGE", "lease_id", "describe one array at a time")
        described = array_service_pb2.DescribeArrayRequest(handle=results[-1].resident.handle)
        assert stub.DescribeArray(described, timeout=30).array.device_bytes == x.nbytes


@pytest.mark.parametrize("mesh", [sc.Mesh(x=1), MESH], ids=["one device", "eight"])
@pytest.mark.parametrize("spec", [ROWS, P(None, "x")], ids=str)
def test_what_stays_keeps_its_bits_when_later_calls_reuse_the_memory(streaming, mesh, spec):
    x = np.random.default_rng(6).standard_normal((4096, 64))
    with (
        streaming.put(x, mesh=mesh, spec=spec) as there,
        streaming.diff(x, n=0, axis=0, mesh=mesh, spec=spec, keep=True).array as kept,
    ):
        for value in (np.nan, -1.0):  # of the same size: into the same regions
            with streaming.put(np.full_like(x, value), mesh=mesh, spec=spec):
                streaming.diff(np.full_like(x, value), n=0, axis=0, mesh=mesh, spec=spec)
        same(there.get(), x)
        same(kept.get(), x)


def test_an_operand_may_be_deleted_while_a_call_waits_for_the_mesh(leasing_server, observer):
    x = np.random.default_rng(7).standard_normal((1024, 130))
    results = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(5):
            there = observer.put(x, **PLACED)
            observer.compile("diff", there, axis=0)
            with stopped(leasing_server):
                call = pool.submit(observer.diff, there, axis=0)
                wait_for(lambda: observer.usage().regions > 0)
                assert observer.delete(there) == 1
            with suppress(sc.ArrayLostError):  # where it was deleted before the call was sent to the mesh
                results.append(call.result(120).array)
    assert results
    for result in results:
        same(result, np.diff(x, axis=0))


def test_a_lease_ends_unless_it_is_renewed(observer, arrays):
    kept = observer.put(X)
    handle = arrays.PutArray(iter([put_request()]), timeout=60).array.handle
    wait_for(lambda: observer.usage().leases == 1)
    request = array_service_pb2.GetArrayRequest(handle=handle)
    assert refusal(lambda: next(arrays.GetArray(request, timeout=60))) == "ARRAY_LOST"
    assert not arrays.RenewLease(array_service_pb2.RenewLeaseRequest(lease_id=LEASE), timeout=60).holds_arrays
    same(kept.get(), X)
    observer.delete(kept)

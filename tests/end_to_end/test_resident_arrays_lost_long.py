"""The tests of `test_resident_arrays_lost.py` that take long."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import numpy as np
import pytest
from end_to_end.messages import details, open_channel
from end_to_end.processes import X, wait_for
from end_to_end.test_resident_arrays_lost import LEASE, put_request, same
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc
from shardcall import P
from shardcall.v1 import array_service_pb2, array_service_pb2_grpc

pytestmark = pytest.mark.long

MESH = sc.Mesh(x=8)


ROWS = P("x", None)


@pytest.fixture(scope="module")
def forgetful() -> Iterator[ServerProcess]:
    """A server that outlives what the tests do to its mesh, and waits for renewals for 5 s."""
    with running_server("--lease-s", "5", why="its leases are short") as running:
        yield running


@pytest.fixture
def arrays(server) -> Iterator[array_service_pb2_grpc.ArrayServiceStub]:
    """The service as it is, without a client that renews leases."""
    with open_channel(server.address) as channel:
        yield array_service_pb2_grpc.ArrayServiceStub(channel)


def test_an_operand_may_be_deleted_while_a_call_waits_for_the_mesh(forgetful):
    x = np.random.default_rng(7).standard_normal((1024, 130))
    (worker,) = forgetful.worker_pids()
    with sc.connect(forgetful.address, shared_memory=False) as client, ThreadPoolExecutor(1) as pool:
        results = []
        for _ in range(5):
            there = client.put(x, mesh=MESH, spec=ROWS)
            client.compile("diff", there, axis=0)
            os.kill(worker, signal.SIGSTOP)
            try:
                call = pool.submit(client.diff, there, axis=0)
                wait_for(lambda: client.usage().regions > 0)
                assert client.delete(there) == 1
            finally:
                os.kill(worker, signal.SIGCONT)
            with suppress(sc.ArrayLostError):  # where it was deleted before the call was sent to the mesh
                results.append(call.result(120).array)
        assert results
        for result in results:
            same(result, np.diff(x, axis=0))
        wait_for(lambda: holds_nothing(client))


def test_a_mesh_that_restarts_loses_its_arrays_and_never_gives_others(forgetful):
    with sc.connect(forgetful.address) as client:
        before = client.put(X, mesh=MESH, spec=ROWS)
        (worker,) = forgetful.worker_pids()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: client.usage().arrays == 0)
        after = client.put(X + 1, mesh=MESH, spec=ROWS)  # the next mesh's first, as that was of the last
        for use in (before.get, lambda: client.describe(before), lambda: client.diff(before, axis=0)):
            with pytest.raises(sc.ArrayLostError, match="which the mesh no longer has"):
                use()
            assert before.lost
        same(after.get(), X + 1)
        assert [array.handle for array in client.list()] == [after.handle]
        after.delete()
        wait_for(lambda: holds_nothing(client))


def test_a_lease_ends_unless_it_is_renewed(forgetful):
    with sc.connect(forgetful.address) as client, open_channel(forgetful.address) as channel:
        arrays = array_service_pb2_grpc.ArrayServiceStub(channel)
        kept = client.put(X)
        handle = arrays.PutArray(iter([put_request()]), timeout=60).array.handle
        wait_for(lambda: client.usage().leases == 1)
        with pytest.raises(grpc.RpcError) as caught:
            next(arrays.GetArray(array_service_pb2.GetArrayRequest(handle=handle), timeout=60))
        assert details(caught.value)["ErrorInfo"].reason == "ARRAY_LOST"
        assert not arrays.RenewLease(array_service_pb2.RenewLeaseRequest(lease_id=LEASE), timeout=60).holds_arrays
        same(kept.get(), X)
        client.delete(kept)
        wait_for(lambda: holds_nothing(client))


def test_arrays_beyond_the_limits_are_refused_unless_others_are_deleted(server_factory):
    half = np.ones((1024, 80))  # 640 KiB
    server = server_factory(
        "--max-resident-bytes-per-lease",
        str(1 << 20),
        "--max-resident-bytes",
        str(3 << 19),
        "--max-resident-bytes-per-client",
        str(3 << 19),
        why="its memory of arrays is small",
    )

    def is_refused_more(client: sc.Client) -> None:
        arrays = client.usage().arrays
        for refused in (
            lambda: client.put(half, mesh=MESH, spec=ROWS),
            lambda: client.put(half[:100], mesh=MESH, spec=P(None, None)),  # 8 copies
            lambda: client.diff(half, axis=0, mesh=MESH, spec=ROWS, keep=True),
        ):
            with pytest.raises(sc.ResourceExhaustedError) as caught:
                refused()
            assert caught.value.reason == "RESIDENT_LIMIT"
            assert client.usage().arrays == arrays

    def may_put_again(client: sc.Client) -> None:
        with client.put(half, mesh=MESH, spec=ROWS) as second:
            same(second.get(), half)

    with (
        sc.connect(server.address, shared_memory=False) as client,
        sc.connect(server.address, shared_memory=False) as other,
        sc.connect(server.address, shared_memory=False) as third,
    ):
        first = client.put(half, mesh=MESH, spec=ROWS)
        is_refused_more(client)  # by the limit of its lease
        same(client.diff(first, axis=0).array, np.diff(half, axis=0))
        with other.put(half, mesh=MESH, spec=ROWS):
            is_refused_more(third)  # by the limit of all leases together
            first.delete()
            may_put_again(client)
            may_put_again(third)
        wait_for(lambda: holds_nothing(client))

"""Limits that are reached, each on a server of its own: of memory, devices, time, programs, arrays and lists."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, check, header, mesh, open_channel, operand
from end_to_end.processes import holds_nothing, stopped, wait_for
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import P
from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2, kernel_service_pb2_grpc

pytestmark = pytest.mark.long

LARGE = np.ones((512, 2048))  # 8 MiB; a difference gives as much back
LEASE = b"lease of a list."


@pytest.fixture(scope="module")
def forgetful() -> Iterator[ServerProcess]:
    """A server that keeps two programs."""
    with running_server("--max-cached-programs", "2", log=Path(os.devnull), why="it keeps two programs") as server:
        yield server


def test_calls_beyond_the_memory_budget_are_refused_and_it_comes_back(server_factory):
    budget = ("--max-bytes-in-flight", str(18 << 20), "--max-call-bytes", str(16 << 20), "--trim-after-s", "0.2")
    poor = server_factory(*budget, why="its memory is little")
    with sc.connect(poor.address, shared_memory=False) as client:
        for _ in range(5):
            np.testing.assert_array_equal(client.diff(LARGE, axis=0).array, np.diff(LARGE, axis=0))

        def refused() -> bool:
            with pytest.raises((sc.DeadlineExceededError, sc.ResourceExhaustedError)) as caught:
                client.diff(LARGE, axis=0, timeout=1.0)
            return bool(caught.value.reason == "SERVER_BUSY")

        with stopped(poor):
            assert not refused()
            # The worker has not answered, so the region is still its own, whatever became of the caller.
            wait_for(refused)

        def works() -> bool:
            try:
                return bool(client.diff(LARGE, axis=0).array.shape == (511, 2048))
            except sc.ResourceExhaustedError:
                return False

        wait_for(works)
        with pytest.raises(sc.ResourceExhaustedError, match="one call may have"):
            client.diff(np.ones((1024, 2048)), axis=0)


def test_what_the_devices_cannot_hold_is_refused_and_what_they_can_hold_later_waits(server_factory):
    server = server_factory("--max-device-bytes", str(24 << 20), devices=2, why="its devices have little memory")
    mesh, spec = sc.Mesh(x=2), P("x", None)
    large, half = np.ones((2048, 1024)), np.ones((1024, 1024))  # 16 and 8 MiB
    with sc.connect(server.address) as client, ThreadPoolExecutor(3) as pool:
        assert client.server_info().limits.max_device_bytes == 24 << 20
        with pytest.raises(sc.OutOfDeviceMemoryError, match="too few") as caught:
            client.diff(large, axis=0, mesh=mesh, spec=spec)  # 16 MiB in, 16 MiB out
        assert int(caught.value.metadata["missing_bytes"]) >= 8 << 20
        assert client.usage().program_device_bytes == 0
        np.testing.assert_array_equal(client.diff(half, axis=0, mesh=mesh, spec=spec).array, np.diff(half, axis=0))
        with stopped(server):
            calls = [pool.submit(client.diff, half, axis=0, mesh=mesh, spec=spec) for _ in range(3)]
            wait_for(lambda: client.usage().queued_calls == 2)  # one of 16 MiB at a time
            assert 16 << 20 <= client.usage().program_device_bytes <= 24 << 20
        for call in calls:
            np.testing.assert_array_equal(call.result(60).array, np.diff(half, axis=0))
        kept = client.put(large, mesh=mesh, spec=spec)
        with pytest.raises(sc.OutOfDeviceMemoryError, match="are missing; delete arrays"):
            client.diff(half, axis=0, mesh=mesh, spec=spec)
        with pytest.raises(sc.OutOfDeviceMemoryError, match="are missing"):
            client.put(large, mesh=mesh, spec=spec)
        np.testing.assert_array_equal(np.asarray(kept), large)
        client.delete(kept)
        client.diff(half, axis=0, mesh=mesh, spec=spec)


@pytest.mark.parametrize("whose", ["server", "caller"])
def test_a_stalled_upload_ends_in_time(server_factory, server, whose):
    if whose == "server":
        server = server_factory("--max-call-s", "1", devices=1, why="its calls end after 1 s")
    metadata = [("shardcall-timeout", "1")] if whose == "caller" else []
    done = threading.Event()

    def stall() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([1 << 20])
        done.wait(120)

    with open_channel(server.address) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.ExecuteStream(stall(), timeout=120, metadata=metadata))
        assert time.monotonic() - began < 60.0
        done.set()
        assert caught.value.code() in {grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_abandoned_compilations_take_no_slots(server_factory):
    server = server_factory(log=Path(os.devnull), why="its compilations are abandoned")
    with sc.connect(server.address) as client:
        with stopped(server):
            for rows in range(8, 72):  # more than a client may have
                with pytest.raises(sc.DeadlineExceededError):
                    client.plan("diff", sc.Array((rows,), "float32"), timeout=0.01)
        assert client.plan("diff", sc.Array((999,), "float32")).kernel == "diff"


def test_many_keys_through_a_cache_of_two_leave_memory_flat(forgetful):
    keys = 500
    (worker,) = forgetful.worker_pids()

    def anonymous_kib() -> int:
        lines = Path(f"/proc/{worker}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    with sc.connect(forgetful.address) as client:
        sizes = []
        for rows in range(keys, 2 * keys):
            plan = client.plan("diff", sc.Array((rows,), "float32"), mesh=sc.Mesh(x=1), spec=P("x"))
            assert not plan.cache_hit
            sizes.append(anonymous_kib())
        assert client.plan("diff", sc.Array((2 * keys - 1,), "float32"), mesh=sc.Mesh(x=1), spec=P("x")).cache_hit
        assert not client.plan("diff", sc.Array((keys,), "float32"), mesh=sc.Mesh(x=1), spec=P("x")).cache_hit
    # 350 programs kept would add 75 MiB, and JAX's own traces of them 8.
    assert sizes[-1] - sizes[149] < 4 << 10


def test_the_cache_is_bounded_by_bytes_too(server_factory):
    server = server_factory("--max-cached-bytes", str(1 << 20), log=Path(os.devnull), why="its programs have few bytes")
    with sc.connect(server.address) as client:

        def hit(rows: int) -> bool:
            return client.plan("diff", sc.Array((rows,), "float32"), mesh=sc.Mesh(x=8), spec=P("x")).cache_hit

        assert not hit(64)
        assert hit(64)
        for rows in range(72, 72 + 8 * 16, 8):  # far fewer than the 256 programs that would be kept by count
            hit(rows)
        assert not hit(64)


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
        check(
            caught.value,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "CALL_TOO_LARGE",
            "lease_id",
            "describe one array at a time",
        )
        described = array_service_pb2.DescribeArrayRequest(handle=results[-1].resident.handle)
        assert stub.DescribeArray(described, timeout=30).array.device_bytes == x.nbytes


def test_arrays_beyond_the_limits_are_refused_unless_others_are_deleted(server_factory):
    half = np.ones((1024, 80))  # 640 KiB
    flags = ("--max-resident-bytes-per-lease", str(1 << 20), "--max-resident-bytes", str(3 << 19))
    flags += ("--max-resident-bytes-per-client", str(3 << 19))
    server = server_factory(*flags, why="its arrays have few bytes")

    def is_refused_more(client: sc.Client) -> None:
        arrays = client.usage().arrays
        for refused in (
            lambda: client.put(half, mesh=sc.Mesh(x=8), spec=P("x", None)),
            lambda: client.put(half[:100], mesh=sc.Mesh(x=8), spec=P(None, None)),  # 8 copies
            lambda: client.diff(half, axis=0, mesh=sc.Mesh(x=8), spec=P("x", None), keep=True),
        ):
            with pytest.raises(sc.ResourceExhaustedError) as caught:
                refused()
            assert caught.value.reason == "RESIDENT_LIMIT"
            assert client.usage().arrays == arrays

    def may_put_again(client: sc.Client) -> None:
        with client.put(half, mesh=sc.Mesh(x=8), spec=P("x", None)) as second:
            np.testing.assert_array_equal(second.get(), half)

    with (
        sc.connect(server.address, shared_memory=False) as client,
        sc.connect(server.address, shared_memory=False) as other,
        sc.connect(server.address, shared_memory=False) as third,
    ):
        first = client.put(half, mesh=sc.Mesh(x=8), spec=P("x", None))
        is_refused_more(client)  # by the limit of its lease
        np.testing.assert_array_equal(client.diff(first, axis=0).array, np.diff(half, axis=0))
        with other.put(half, mesh=sc.Mesh(x=8), spec=P("x", None)):
            is_refused_more(third)  # by the limit of all leases together
            first.delete()
            may_put_again(client)
            may_put_again(third)
        wait_for(lambda: holds_nothing(client))

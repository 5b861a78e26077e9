"""Limits of memory, time and programs that take long to be reached."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import header, open_channel
from end_to_end.processes import stopped, wait_for

import shardcall as sc
from shardcall import P
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc

pytestmark = pytest.mark.long

LARGE = np.ones((512, 2048))  # 8 MiB; a difference gives as much back


def test_calls_beyond_the_memory_budget_are_refused_and_it_comes_back(modest):
    with sc.connect(modest.address, shared_memory=False) as client:
        for _ in range(5):
            np.testing.assert_array_equal(client.diff(LARGE, axis=0).array, np.diff(LARGE, axis=0))

        def refused() -> bool:
            with pytest.raises((sc.DeadlineExceededError, sc.ResourceExhaustedError)) as caught:
                client.diff(LARGE, axis=0, timeout=1.0)
            return bool(caught.value.reason == "SERVER_BUSY")

        with stopped(modest):
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
    server = server_factory("--max-device-bytes", str(24 << 20), devices=2, why="its devices' memory is small")
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
        placed = client.put(half[:512], mesh=mesh, spec=spec)
        endless = client.xp.fori_loop(0, 10**12, lambda i, x: x + 1, placed)
        wait_for(lambda: client.usage().program_device_bytes)
        with pytest.raises(sc.DeadlineExceededError):  # also in the time between the slices of the loop
            client.diff(half, axis=0, mesh=mesh, spec=spec, timeout=3)
        endless.delete()
        client.diff(half, axis=0, mesh=mesh, spec=spec)


@pytest.mark.parametrize("whose", ["server", "caller"])
def test_a_stalled_upload_ends_in_time(server_factory, server, whose):
    if whose == "server":
        server = server_factory("--max-call-s", "1", devices=1, why="its limits of time are short")
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


def test_many_keys_through_a_cache_of_two_leave_memory_flat(modest):
    keys = 500
    (worker,) = modest.worker_pids()

    def anonymous_kib() -> int:
        lines = Path(f"/proc/{worker}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    with sc.connect(modest.address) as client:
        sizes = []
        for rows in range(keys, 2 * keys):
            assert not client.plan("diff", sc.Array((rows,), "float32"), mesh=sc.Mesh(x=1), spec=P("x")).cache_hit
            sizes.append(anonymous_kib())
        assert client.plan("diff", sc.Array((2 * keys - 1,), "float32"), mesh=sc.Mesh(x=1), spec=P("x")).cache_hit
        assert not client.plan("diff", sc.Array((keys,), "float32"), mesh=sc.Mesh(x=1), spec=P("x")).cache_hit
    # 350 programs kept would add 75 MiB, and JAX's own traces of them 8.
    assert sizes[-1] - sizes[149] < 4 << 10

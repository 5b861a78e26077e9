"""Limits that are reached: of memory, time, call slots and programs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from end_to_end.filing import files_of, refused
from end_to_end.messages import header, open_channel
from end_to_end.processes import left_empty, wait_for
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc

LARGE = np.ones((512, 2048))  # 8 MiB; a difference gives as much back
X = np.arange(24.0).reshape(8, 3)


@pytest.fixture(scope="module")
def poor_server() -> Iterator[ServerProcess]:
    flags = ("--max-bytes-in-flight", str(18 << 20), "--max-call-bytes", str(16 << 20), "--trim-after-s", "0.2")
    flags += ("--max-cached-programs", "2", "--max-concurrent-calls", "1")
    with running_server(*flags, log=Path(os.devnull), why="its memory, programs and calls are few") as server:
        yield server


@pytest.fixture
def poor(poor_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server with memory for one call of arrays like LARGE, which works on one at a time and keeps two programs."""
    with left_empty(poor_server) as server:
        yield server


def test_a_result_that_stays_may_be_larger_than_what_travels(poor):
    with sc.connect(poor.address, shared_memory=False) as client:
        drawn = {"shape": (1024, 2049), "mesh": sc.Mesh(x=8)}  # 16 MiB and 8 KiB
        with pytest.raises(sc.ResourceExhaustedError, match=r"leave the results on the mesh \(keep=True\)"):
            client.uniform(0, **drawn)
        with client.uniform(0, keep=True, **drawn).array as kept:
            assert kept.nbytes == 1024 * 2049 * 8
            assert client.mean(kept).array.item() == pytest.approx(0.5, abs=0.01)
        with pytest.raises(sc.ResourceExhaustedError):
            client.uniform(0, **drawn)


def test_a_claim_takes_nothing_of_the_budget_that_others_need(poor):
    done = threading.Event()

    def claim() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header([1 << 20])  # as much as LARGE
        done.wait(30)

    with open_channel(poor.address) as channel, sc.connect(poor.address, shared_memory=False) as client:
        wait_for(lambda: not client.usage().bytes_idle)  # a claim may reuse idle memory, which then counts
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        stalled = [stub.ExecuteStream(claim(), timeout=30) for _ in range(3)]
        real = LARGE[:128]
        for _ in range(3):
            np.testing.assert_array_equal(client.diff(real, axis=0).array, np.diff(real, axis=0))
        for stream in stalled:
            stream.cancel()
        done.set()


def test_evicted_programs_come_back_under_callers_that_use_them(poor):
    done = threading.Event()

    def work(rows: int) -> int:
        x, count = np.arange(float(rows)) ** 2, 0
        with sc.connect(poor.address) as client:
            while not done.is_set() or count < 10:
                np.testing.assert_array_equal(client.diff(x).array, np.diff(x))
                count += 1
                if count == 25:
                    done.set()
        return count

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(work, [5, 6, 7, 8])) >= 10


def test_a_principal_has_few_files_of_few_bytes(limited_server, suffix):
    with files_of(limited_server) as filing:
        client, h = filing.client, filing.client.put(X)
        for i in range(6):
            client.save(h, f"runs/{i}{suffix}")
        with pytest.raises(sc.ResourceExhaustedError, match="has 6 files, and may have no more"):
            client.save(h, f"other/a{suffix}")
        assert refused(lambda: client.save(client.put(np.zeros(8 << 20)), f"runs/0{suffix}")) == "FILE_LIMIT"
        client.save(h, f"runs/0{suffix}")
        assert [file.name for file in client.files()] == [f"runs/{i}{suffix}" for i in range(6)]
        for i in range(2):
            client.remove_file(f"runs/{i}{suffix}")
        client.save(client.put(np.zeros(4 << 20)), f"other/a{suffix}")
        assert refused(lambda: client.save(client.put(np.zeros(5 << 20)), f"b{suffix}")) == "FILE_LIMIT"

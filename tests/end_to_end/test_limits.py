"""Limits that are reached: of memory, time, call slots and programs."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import shardcall as sc


def test_a_result_that_stays_may_be_larger_than_what_travels(modest):
    with sc.connect(modest.address, shared_memory=False) as client:
        drawn = {"shape": (1024, 2049), "mesh": sc.Mesh(x=8)}  # 16 MiB and 8 KiB
        with pytest.raises(sc.ResourceExhaustedError, match=r"leave the results on the mesh \(keep=True\)"):
            client.uniform(0, **drawn)
        with client.uniform(0, keep=True, **drawn).array as kept:
            assert kept.nbytes == 1024 * 2049 * 8
            assert client.mean(kept).array.item() == pytest.approx(0.5, abs=0.01)
        with pytest.raises(sc.ResourceExhaustedError):
            client.uniform(0, **drawn)


def test_evicted_programs_come_back_under_callers_that_use_them(modest):
    done = threading.Event()

    def work(rows: int) -> int:
        x, count = np.arange(float(rows)) ** 2, 0
        with sc.connect(modest.address) as client:
            while not done.is_set() or count < 10:
                np.testing.assert_array_equal(client.diff(x).array, np.diff(x))
                count += 1
                if count == 25:
                    done.set()
        return count

    with ThreadPoolExecutor(4) as pool:
        assert min(pool.map(work, [5, 6, 7, 8])) >= 10


def test_a_server_without_a_folder_keeps_no_files(modest):
    with sc.connect(modest.address) as client:
        with pytest.raises(sc.ShardcallError, match="--array-dir") as refused:
            client.put(np.ones(3), name="u", durable=True)
        assert refused.value.reason == "FILES_UNAVAILABLE"

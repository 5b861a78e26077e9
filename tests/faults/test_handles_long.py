"""No handle ever shows other data while the mesh ends, and memory stays flat under a hundred thousand arrays."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from faults.test_handles import MESH, operate
from servers import ServerProcess, running_server

import shardcall as sc

pytestmark = pytest.mark.long


def resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize() / 2**20


def test_memory_stays_flat_while_arrays_are_created_and_dropped(forgetful):
    count = 100_000
    with sc.connect(forgetful.address) as client:
        x = client.put(np.zeros(4096), mesh=MESH)

        def make(number: int) -> None:
            for i in range(number):
                h = x + float(i)
                if not i % 500:
                    assert float(h[0]) == i
            del h
            client.synchronize()
            gc.collect()
            wait_for(lambda: client.usage().arrays == 1)

        make(count // 10)
        pids = [os.getpid(), forgetful.process.pid, *forgetful.worker_pids()]
        before = [resident_mib(pid) for pid in pids]
        make(count)
        grown = [resident_mib(pid) - mib for pid, mib in zip(pids, before, strict=True)]
        # 3 KiB for each would be 300 MiB of 100,000.
        assert max(grown) < 40


@pytest.fixture(scope="module")
def forgetful() -> Iterator[ServerProcess]:
    """A server whose mesh the tests end."""
    with running_server(why="its mesh ends, and its memory is watched") as running:
        yield running


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_handle_shows_other_data_when_meshes_end(forgetful, seed):
    operate(forgetful, seed, count=3000, end_mesh=lambda: end_mesh(forgetful))


def end_mesh(server: ServerProcess) -> None:
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: worker not in server.worker_pids())

"""No handle ever shows other data while the mesh ends, and memory stays flat under a hundred thousand arrays."""

import gc
import itertools
import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.processes import left_empty, wait_for
from faults.gauges import MIB, Gauges
from faults.restarting import RestartingServer
from faults.test_handles import MESH, operate

import shardcall as sc

pytestmark = pytest.mark.long


def test_memory_stays_flat_while_arrays_are_created_and_dropped(forgetful):
    count = 40_000
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
        pids = [os.getpid(), forgetful.running.process.pid, *forgetful.running.worker_pids()]
        before = [Gauges.of(pid, 0.0).memory_bytes for pid in pids]
        make(count)
        grown = [Gauges.of(pid, 0.0).memory_bytes - held for pid, held in zip(pids, before, strict=True)]
        # 3 KiB for each would be 120 MiB.
        assert max(grown) < 40 * MIB


@pytest.fixture(scope="module")
def forgetful() -> Iterator[RestartingServer]:
    """A server whose mesh the tests end."""
    with RestartingServer() as running:
        yield running


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_handle_shows_other_data_when_meshes_end(forgetful, seed):
    """The worker is killed, and then the front end, in turn."""
    ends = itertools.cycle([kill_worker, kill_front_end])
    operate(forgetful.running, seed, count=3000, end_mesh=lambda client: next(ends)(forgetful, client))
    with left_empty(forgetful.running):
        pass


def kill_worker(server: RestartingServer, client: sc.Client) -> None:
    (worker,) = server.running.worker_pids()
    epoch = client.server_info().epoch
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: worker not in server.running.worker_pids())
    # Until then a deletion finds the arrays.
    wait_for(lambda: not (info := client.server_info()).ready or info.epoch != epoch)


def kill_front_end(server: RestartingServer, client: sc.Client) -> None:
    server.kill()
    server.start()
    wait_for(lambda: client.server_info().ready)

"""No handle ever shows other data while the mesh ends."""

import itertools
import os
import signal
from collections.abc import Iterator

import pytest
from end_to_end.processes import left_empty, wait_for
from faults.restarting import RestartingServer
from faults.test_handles import operate

import shardcall as sc

pytestmark = pytest.mark.long


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

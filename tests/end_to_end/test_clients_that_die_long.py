"""Twenty clients at once killed in the middle of streams, of calls, at any moment, and while they have arrays."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from end_to_end.processes import holds_nothing, is_busy, stopped, wait_for
from end_to_end.test_clients_that_die import is_as_before, kill_all, observed, settled, victims
from servers import ServerProcess, running_server

import shardcall as sc

pytestmark = pytest.mark.long


AT_ONCE, ROUNDS = 20, range(5)


@pytest.fixture(scope="module")
def crowded() -> Iterator[ServerProcess]:
    """A server with as many call slots as there are victims."""
    of_all = str(AT_ONCE)
    limits = ("--max-concurrent-calls", of_all, "--max-concurrent-calls-per-client", of_all)
    limits += ("--max-launched-calls", of_all, "--stream-idle-s", "300")  # on a busy machine not all come at once
    why = "as many calls run as clients die"
    with running_server("--trim-after-s", "0.2", *limits, "--lease-s", "5", why=why) as server:
        yield server


@pytest.fixture
def observer(crowded: ServerProcess) -> Iterator[sc.Client]:
    with observed(crowded) as client:
        yield client


@pytest.mark.parametrize("deed", ["upload", "download", "put"])
def test_in_the_middle_of_a_stream(crowded: ServerProcess, observer: sc.Client, deed: str):
    before = settled(observer)
    for _ in ROUNDS:
        with victims(crowded, deed, AT_ONCE) as pids:
            wait_for(lambda: observer.usage().regions == AT_ONCE)
            kill_all(pids)
            wait_for(lambda: is_as_before(observer, before))


def test_in_the_middle_of_calls_by_shared_memory(crowded: ServerProcess, observer: sc.Client):
    before = settled(observer)
    for _ in ROUNDS:
        with victims(crowded, "call_by_segment", AT_ONCE) as pids, stopped(crowded):
            wait_for(lambda: is_busy(observer, AT_ONCE))
            kill_all(pids)
            # The worker may still write there, so none of it may go yet. Some calls may have been answered before the
            # worker was stopped, and their clients killed before they called again: those segments go.
            wait_for(lambda: not is_busy(observer))
            assert observer.usage().segments >= 1
        wait_for(lambda: is_as_before(observer, before))


@pytest.mark.parametrize("deed", ["call_by_stream", "call_by_segment"])
def test_at_any_moment(crowded: ServerProcess, observer: sc.Client, deed: str):
    before = settled(observer)
    for _ in ROUNDS:
        with victims(crowded, deed, AT_ONCE) as pids:
            for pid in pids:
                wait_for(lambda: not holds_nothing(observer))  # all that are left are calling
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: is_as_before(observer, before))


def test_arrays_that_they_left_on_the_mesh_go_with_their_leases(crowded: ServerProcess, observer: sc.Client):
    before = settled(observer)
    with victims(crowded, "keep_arrays", AT_ONCE) as pids:
        assert observer.usage().arrays == observer.usage().leases == AT_ONCE
        kill_all(pids)
        wait_for(lambda: is_as_before(observer, before))

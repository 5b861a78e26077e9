"""Clients killed in the middle of what they do: all that the server held for them comes back."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import X, is_busy, stopped, wait_for
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc
from shardcall_core.types.usage import Usage

pytestmark = pytest.mark.long

AT_ONCE = 20
_VICTIMS = Path(__file__).parent / "victims.py"

ROUNDS = 5


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ServerProcess]:
    """A server with as many call slots as there are victims."""
    of_all = str(AT_ONCE)
    limits = ("--max-concurrent-calls", of_all, "--max-concurrent-calls-per-client", of_all)
    limits += ("--max-launched-calls", of_all, "--stream-idle-s", "300")  # on a busy machine not all come at once
    with running_server(
        "--trim-after-s", "0.2", *limits, "--lease-s", "5", why="all that it holds is counted"
    ) as server:
        yield server


@pytest.fixture
def observer(shared_server: ServerProcess) -> Iterator[sc.Client]:
    """A client that looks on; afterwards the server is as it was, and calls are right."""
    workers = shared_server.worker_pids()
    with sc.connect(shared_server.address, shared_memory=False) as client:
        yield client
        np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))
    assert shared_server.process.poll() is None
    assert shared_server.worker_pids() == workers


@contextmanager
def victims(server: ServerProcess, deed: str, count: int = AT_ONCE) -> Iterator[list[int]]:
    """Clients that have come to the middle of something; the ids of their processes."""
    command = [sys.executable, str(_VICTIMS), server.address, deed, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(_VICTIMS.parent.parent)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield [int(process.stdout.readline()) for _ in range(count)]
        finally:
            process.stdin.close()


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def is_as_before(client: sc.Client, before: Usage) -> bool:
    """Returns whether every gauge is back at its first value, those of descriptors and idle memory too."""
    usage = client.usage()
    return holds_nothing(client) and usage.descriptors <= before.descriptors and not usage.bytes_idle


def settled(client: sc.Client) -> Usage:
    """Returns the usage of a server when it is idle."""
    client.diff(X, axis=0)  # what a first call leaves open is no concern of the victims
    wait_for(lambda: holds_nothing(client) and not client.usage().bytes_idle)
    return client.usage()


@pytest.mark.parametrize(
    ("deed", "gauge"),
    [
        ("upload", "regions"),
        ("download", "regions"),
        ("put", "regions"),
        ("hold_segment", "segments"),
        ("keep_arrays", "arrays"),
    ],
)
def test_in_the_middle_of_a_stream_or_with_what_they_hold(shared_server, observer: sc.Client, deed: str, gauge: str):
    before = settled(observer)
    for _ in range(ROUNDS):
        with victims(shared_server, deed) as pids:
            wait_for(lambda: getattr(observer.usage(), gauge) == AT_ONCE)
            kill_all(pids)
            wait_for(lambda: is_as_before(observer, before))


def test_in_the_middle_of_calls_by_shared_memory(shared_server: ServerProcess, observer: sc.Client):
    before = settled(observer)
    for _ in range(ROUNDS):
        with victims(shared_server, "call_by_segment") as pids, stopped(shared_server):
            wait_for(lambda: is_busy(observer, AT_ONCE))
            kill_all(pids)
            # The worker may still write there, so none of it may go yet. Some calls may have been answered before the
            # worker was stopped, and their clients killed before they called again: those segments go.
            wait_for(lambda: not is_busy(observer))
            assert observer.usage().segments >= 1
        wait_for(lambda: is_as_before(observer, before))

"""Clients killed in the middle of what they do: all that the server held for them comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import X, holds_nothing, wait_for
from servers import ServerProcess

import shardcall as sc
from shardcall_core.types.usage import Usage

_VICTIMS = Path(__file__).parent / "victims.py"


@contextmanager
def observed(server: ServerProcess) -> Iterator[sc.Client]:
    """A client that looks on; afterwards the server is as it was, and calls are right."""
    workers = server.worker_pids()
    with sc.connect(server.address, shared_memory=False) as client:
        yield client
        np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))
    assert server.process.poll() is None
    assert server.worker_pids() == workers


@pytest.fixture
def observer(exclusive_server: ServerProcess) -> Iterator[sc.Client]:
    with observed(exclusive_server) as client:
        yield client


@contextmanager
def victims(server: ServerProcess, deed: str, count: int) -> Iterator[list[int]]:
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


def test_while_they_hold_shared_memory(exclusive_server: ServerProcess, observer: sc.Client):
    before = settled(observer)
    with victims(exclusive_server, "hold_segment", 4) as pids:
        assert observer.usage().segments >= 4
        kill_all(pids)
        wait_for(lambda: is_as_before(observer, before))

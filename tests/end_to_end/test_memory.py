"""Memory that the server's processes hold: bounded while they work, flat over many calls, released when idle."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from end_to_end.processes import wait_for
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import P

MIB = 1 << 20
MESH = sc.Mesh(x=8)
SLACK = 8 * MIB


def processes(server: ServerProcess) -> list[int]:
    """The ids of front end and worker."""
    return [server.process.pid, *server.worker_pids()]


def pss(pids: list[int]) -> int:
    """Memory that processes hold together, with shared pages counted once.

    Without the pages of libraries, which other processes share for as long as they happen to run.
    """
    rollups = "".join(Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)
    return sum(int(kib) << 10 for kib in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", rollups, re.M))


@pytest.fixture(scope="module")
def keeping() -> Iterator[ServerProcess]:
    """A server that keeps the memory of calls for the next ones."""
    with running_server("--trim-after-s", "60", why="it keeps memory for a minute") as server:
        yield server


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_arrays_that_are_computed_and_dropped_leave_memory_flat(keeping, count: int):
    pids = [*processes(keeping), os.getpid()]
    with sc.connect(keeping.address) as client:
        h = client.put(np.arange(512.0).reshape(64, 8), mesh=MESH, spec=P("x", None))
        held = []
        for i in range(count):
            last = client.submit("add", h, float(i))
            if i % (count // 20) == count // 20 - 1:
                client.synchronize()
                held.append(pss(pids))
        np.testing.assert_array_equal(last, h.get() + (count - 1))
        wait_for(lambda: client.usage().arrays == 2)
    assert median(held[-5:]) <= median(held[5:10]) * 1.05 + SLACK

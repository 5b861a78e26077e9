"""Memory that the server's processes hold: bounded while they work, flat over many calls, released when idle."""

from __future__ import annotations

import os
import re
from pathlib import Path
from statistics import median

import numpy as np
from end_to_end.processes import wait_for
from servers import ServerProcess

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(x=8)
SLACK = 8 << 20


def processes(server: ServerProcess) -> list[int]:
    """The ids of front end and worker."""
    return [server.process.pid, *server.worker_pids()]


def pss(pids: list[int]) -> int:
    """Memory that processes hold together, with shared pages counted once.

    Without the pages of libraries, which other processes share for as long as they happen to run.
    """
    rollups = "".join(Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)
    return sum(int(kib) << 10 for kib in re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB", rollups, re.M))


def check_that_dropped_arrays_leave_memory_flat(server: ServerProcess, count: int) -> None:
    """Computes arrays from one another and drops them, and looks at the memory twenty times."""
    pids = [*processes(server), os.getpid()]
    with sc.connect(server.address) as client:
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


def test_arrays_that_are_computed_and_dropped_leave_memory_flat(exclusive_server):
    check_that_dropped_arrays_leave_memory_flat(exclusive_server, 2_000)

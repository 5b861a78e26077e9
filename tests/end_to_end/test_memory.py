"""Memory that the server's processes hold: bounded while they work, flat over many calls, released when idle."""

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

pytestmark = pytest.mark.long

MIB = 1 << 20
MESH = sc.Mesh(x=8)
SLACK = 8 * MIB
ROWS, COLUMNS = 1024, 2048  # 16 MiB
SETTLED = 50


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


def test_arrays_that_are_computed_and_dropped_leave_memory_flat(keeping):
    count = 20_000
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


def call(client: sc.Client, x: np.ndarray) -> None:
    assert client.diff(x, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None)).array[-1, -1] == x[-1, -1] - x[-2, -1]


@pytest.mark.parametrize("shared_memory", [True, False])
def test_many_calls_hold_no_more_than_the_first(keeping, shared_memory: bool):
    count = 1000
    pids = processes(keeping)
    x = np.random.default_rng(0).standard_normal((ROWS // 2, COLUMNS))
    with sc.connect(keeping.address, shared_memory=shared_memory) as client:
        # Free memory comes and goes by one array or, on a busy machine, by an operand and a result.
        held = []
        for i in range(count):
            call(client, x)
            if SETTLED // 2 <= i < SETTLED or count - i <= SETTLED // 2:
                held.append(pss(pids))
        first, last = held[: SETTLED // 2], held[-SETTLED // 2 :]
        assert median(last) <= median(first) * 1.05 + 2 * x.nbytes + SLACK // 4


@pytest.mark.parametrize("shared_memory", [True, False])
def test_idle_processes_give_their_memory_back(server_factory, shared_memory: bool):
    server = server_factory("--trim-after-s", "0.2", why="its memory is measured")
    pids = processes(server)
    x = np.random.default_rng(0).standard_normal((4 * ROWS, COLUMNS))
    with sc.connect(server.address, shared_memory=shared_memory) as client:
        call(client, x[:64])
        client.compile("diff", x, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None))
        before = pss(pids)
        for _ in range(3):
            call(client, x)
    wait_for(lambda: pss(pids) <= before + SLACK)


def test_the_memory_of_resident_arrays_is_released_when_they_are_deleted(server_factory):
    server = server_factory("--trim-after-s", "0.2", why="its memory is measured")
    pids = processes(server)
    x = np.random.default_rng(0).standard_normal((4 * ROWS, COLUMNS))
    with sc.connect(server.address, shared_memory=False) as client:
        call(client, x[:64])
        before = pss(pids)
        kept = [client.put(x, mesh=MESH, spec=P("x", None)) for _ in range(4)]
        assert pss(pids) > before + 4 * x.nbytes
        client.delete(*kept)
        wait_for(lambda: pss(pids) <= before + SLACK)


def test_successive_calls_of_many_sizes_stay_within_the_budget(server_factory):
    limit = 32 * MIB
    server = server_factory(
        *("--max-bytes-in-flight", str(limit), "--max-bytes-per-client", str(limit)),
        *("--max-call-bytes", str(24 * MIB), "--trim-after-s", "60"),
        devices=1,
        why="its memory is small",
    )
    with sc.connect(server.address, shared_memory=False) as client:
        for i in range(10):
            x = np.full((2, (i + 1) * MIB // 16), float(i))  # 1 to 10 MiB, and half of that back
            assert not client.diff(x, axis=0).array.any()
            usage = client.usage()
            assert usage.bytes_in_use + usage.bytes_idle <= limit
            assert usage.bytes_high_water <= limit
        assert client.usage().bytes_idle > limit // 2  # so that something had to go

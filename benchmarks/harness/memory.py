"""Memory of the server's two processes during calls, relative to an idle server."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.asking import Child, Server, client_environment, server
from harness.processes import PeakMemory, pss_bytes
from harness.report import Claim, ratio_claim, size_name, table

TRANSPORTS = {"tcp": ("TCP, stream", 2.2), "segment-in-place": ("segment", 1.7)}
_MIN_BYTES = 16 << 20
_CALLS = 10
_FIRST_CALLS = 50


@contextmanager
def _idle_server(tuned: bool) -> Iterator[tuple[Server, Child]]:
    """Starts a server that has served one small call, and a client of it."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder), tuned=tuned) as running:
        client = Child("peers.shardcall_client", running.address, environment=client_environment(tuned))
        client.ask("tcp", 4096)
        yield running, client
        client.stop()


def by_size(sizes: Sequence[int], tuned: bool) -> tuple[list[str], list[Claim]]:
    """Measures the peak above idle during a few calls, for sizes from 16 MiB, with a new server for each size."""
    rows = [["array", "transport", "idle, MiB", "peak above idle, MiB", "÷ (input + output)"]]
    claims = []
    for size in (size for size in sizes if size >= _MIN_BYTES):
        for transport, (title, limit) in TRANSPORTS.items():
            print(f"memory: {size_name(size)}, {title}", file=sys.stderr)
            with _idle_server(tuned) as (running, client):
                pids = (running.pid, running.worker_pid)
                idle = pss_bytes(pids)
                with PeakMemory(pids) as memory:
                    answers = [client.ask(transport, size) for _ in range(_CALLS)]
            if error := answers[0].get("error"):
                rows.append([size_name(size), title, _mib(idle), "", error])
                continue
            ratio = (memory.peak_bytes - idle) / (2 * size)
            rows.append([size_name(size), title, _mib(idle), _mib(memory.peak_bytes - idle), f"{ratio:.2f}"])
            claims.append(ratio_claim(f"{size_name(size)}: {title}: at most {limit} × (input + output)", limit, ratio))
    return table(rows, left=2), claims


def by_count(calls: int, tuned: bool) -> tuple[list[str], list[Claim]]:
    """Measures memory after 50 calls of 16 MiB and after many."""
    rows = [["transport", f"after {_FIRST_CALLS} calls, MiB", f"after {calls} calls, MiB", "quotient"]]
    claims = []
    for transport, (title, _) in TRANSPORTS.items():
        print(f"memory: {calls} calls of {size_name(_MIN_BYTES)}, {title}", file=sys.stderr)
        with _idle_server(tuned) as (running, client):
            pids = (running.pid, running.worker_pid)
            after = []
            for count in (_FIRST_CALLS, calls - _FIRST_CALLS):
                answers = [client.ask(transport, _MIN_BYTES) for _ in range(count)]
                after.append(pss_bytes(pids))
        if error := answers[-1].get("error"):
            rows.append([title, "", "", error])
            continue
        ratio = after[1] / after[0]
        rows.append([title, *map(_mib, after), f"{ratio:.3f}"])
        text = f"{title}: {calls} calls of 16 MiB end at most 5 % above where the first {_FIRST_CALLS} did"
        claims.append(Claim(text, f"{ratio:.3f} ×", ratio <= 1.05))
    return table(rows), claims


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f}"

"""Calls of one client beside attacks of another.

    python benchmarks/attacks.py [--rounds N] [--seconds N] [--output FILE.md] [ATTACK...]

Two principals use a server of 8 devices. One makes small cached calls, one after the other, and one call with a new
program every second. The other attacks it, from a process of its own. In each round every attack follows a quiet time,
and so do two loops that use processors and no server: they are the floor of what any process on this machine costs the
first client. Ratios are to the quiet time before. A probe asks for /healthz ten times a second, and the memory of the
front end is read as often. benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from attackers import ATTACKS, attack

import shardcall as sc
from harness.report import Claim, claim_table, machine, milliseconds, ratio_claim, table
from shardcall_core.wire import token_file

PROGRAM_PERIOD_S = 1.0
PROBE_PERIOD_S = 0.1
PROBE_S = 1.0  # a probe that takes longer counts as unanswered
ALLOWED_BYTES = 64 << 20  # for the arrays of all calls
START_S = 2.0  # for the import of an attacker, before anything is measured

CRASHING_KERNEL = """
import os
from shardcall_server import authoring

def build(problem, mesh):
    return lambda x: os.abort()

class Crashing(authoring.Kernel):
    name, version, summary = "crashing", 1, "Ends the process that compiles it."
    operands = (authoring.OperandInfo("x", "Any array."),)
    strategies = (authoring.Strategy("only", "There is no other.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        return authoring.Signature(None, operands)

    def default_out_specs(self, problem, strategy):
        return problem.in_specs
"""


def main() -> None:
    """Measures the calls beside each attack and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)}; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--attack", nargs=3, metavar=("NAME", "ADDRESS", "METRICS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        name, address, metrics = arguments.attack
        attack(name, address, metrics, os.environ["SHARDCALL_TOKEN"])
        return
    lines = report(arguments.attacks or list(ATTACKS), arguments.rounds, arguments.seconds)
    print("\n".join(lines))
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


@dataclass(frozen=True)
class Figures:
    """The figures of one measurement.

    Attributes:
        rate: cached calls a second.
        p99_s: the 99th percentile of their durations, in seconds.
        new_s: the median of calls with new programs, in seconds.
        memory_bytes: the largest resident memory of the front end.
        unanswered: probes that were not answered in time.
        restarts: of the mesh.
    """

    rate: float
    p99_s: float
    new_s: float
    memory_bytes: int
    unanswered: int
    restarts: int


def report(names: list[str], rounds: int, seconds: float) -> list[str]:
    """Returns the lines of the report."""
    figures: defaultdict[str, list[tuple[Figures, Figures]]] = defaultdict(list)
    for _ in range(rounds):
        for name in names:
            figures[name].append(compared(name, seconds))
            print(f"{name}: {figures[name][-1][1]}", file=sys.stderr)
    rows = [["beside", "calls/s", "ratio", "p99, ms", "ratio", "new, ms", "ratio", "MiB", "probes late", "restarts"]]
    claims: list[Claim] = []
    for name, pairs in figures.items():
        quiet, attacked = zip(*pairs, strict=True)
        rate = statistics.median(b.rate / a.rate for a, b in pairs)
        p99 = statistics.median(b.p99_s / a.p99_s for a, b in pairs)
        new = statistics.median(b.new_s / a.new_s for a, b in pairs)
        memory_bytes = max(figure.memory_bytes for figure in attacked)
        unanswered, restarts = (
            sum(getattr(figure, name) for figure in attacked) for name in ("unanswered", "restarts")
        )
        rows.append(
            [
                name,
                arrow(f"{statistics.median(figure.rate for figure in side):.0f}" for side in (quiet, attacked)),
                f"{rate:.2f}",
                arrow(milliseconds(statistics.median(figure.p99_s for figure in side)) for side in (quiet, attacked)),
                f"{p99:.2f}",
                arrow(milliseconds(statistics.median(figure.new_s for figure in side)) for side in (quiet, attacked)),
                f"{new:.2f}",
                f"{memory_bytes / 2**20:.0f}",
                str(unanswered),
                str(restarts),
            ]
        )
        limit = ALLOWED_BYTES + (150 << 20)
        claims += [
            Claim(f"{name}: at least 0.4 of the quiet calls a second", f"{rate:.2f} ×", rate >= 0.4),
            ratio_claim(f"{name}: p99 of cached calls at most 20 × the quiet one", 20.0, p99),
            Claim(
                f"{name}: the front end has what is allowed and 150 MiB",
                f"{memory_bytes >> 20} MiB",
                memory_bytes <= limit,
            ),
            Claim(f"{name}: every probe is answered within 1 s", f"{unanswered} late", not unanswered),
            Claim(f"{name}: no mesh ends", f"{restarts} restarts", not restarts),
        ]
    return [
        *machine(["jax", "jaxlib", "grpcio", "numpy"], {"rounds": str(rounds), "seconds": f"{seconds:g}"}),
        "",
        *table(rows),
        "",
        *claim_table(claims),
    ]


def arrow(values: Iterable[str]) -> str:
    """Joins the figures without and with an attack."""
    return " -> ".join(values)


def compared(name: str, seconds: float) -> tuple[Figures, Figures]:
    """Measures a server in a quiet time, and then beside an attack."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as server,
        sc.connect(server.address, token=server.tokens["victim"]) as victim,
        sc.connect(server.address, token=server.tokens["admin"]) as admin,
    ):
        sizes = count(1000)
        measure(victim, admin, server, sizes, 3.0)
        quiet = measure(victim, admin, server, sizes, seconds)
        with attacker(name, server):
            time.sleep(START_S)
            return quiet, measure(victim, admin, server, sizes, seconds)


def measure(client: sc.Client, admin: sc.Client, server: Server, sizes: Iterator[int], seconds: float) -> Figures:
    """Measures the calls of a client, the probes and the memory of the front end."""
    small: list[float] = []
    new: list[float] = []
    end = time.monotonic() + seconds
    x = np.arange(8.0)
    memory = [0]
    unanswered = [0]

    def call_new() -> None:
        while time.monotonic() < end:
            began = time.perf_counter()
            with suppress(sc.MeshRestartedError):
                client.flip(np.arange(next(sizes)), strategy="gathered", timeout=120)
            new.append(time.perf_counter() - began)
            time.sleep(max(0.0, PROGRAM_PERIOD_S - new[-1]))

    def probe() -> None:
        while time.monotonic() < end:
            memory[0] = max(memory[0], rss_bytes(server.pid))
            began = time.perf_counter()
            unanswered[0] += not is_healthy(server.metrics)
            time.sleep(max(0.0, PROBE_PERIOD_S - (time.perf_counter() - began)))

    restarts = admin.usage().mesh.restarts
    threads = [threading.Thread(target=work) for work in (call_new, probe)]
    for thread in threads:
        thread.start()
    began_all = time.monotonic()
    while time.monotonic() < end:
        began = time.perf_counter()
        with suppress(sc.MeshRestartedError):
            client.diff(x, timeout=120)
        small.append(time.perf_counter() - began)
    took_s = time.monotonic() - began_all
    for thread in threads:
        thread.join()
    restarts = admin.usage().mesh.restarts - restarts
    rate, p99_s = len(small) / took_s, float(np.quantile(small, 0.99))
    return Figures(rate, p99_s, statistics.median(new), memory[0], unanswered[0], restarts)


def is_healthy(metrics: str) -> bool:
    """Returns whether the server answers a probe in time."""
    host, _, port = metrics.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PROBE_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def rss_bytes(pid: int) -> int:
    """Returns the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Server(NamedTuple):
    """A server that runs.

    Attributes:
        address: its address.
        metrics: that of its metrics and probes.
        pid: the process id of its front end.
        tokens: by principal.
    """

    address: str
    metrics: str
    pid: int
    tokens: dict[str, str]


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Starts a server with three principals."""
    (folder / "crashing_kernel.py").write_text(CRASHING_KERNEL)
    metadata = folder / "crashing_kernel-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: crashing-kernel\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[shardcall.kernels]\ncrashing = crashing_kernel:Crashing\n")
    scopes = {"victim": ["run", "arrays"], "attacker": ["run", "arrays", "files"], "admin": ["run", "arrays", "admin"]}
    entries = [token_file.Entry.make(name, scopes[name]) for name in scopes]
    path = str(folder / "state" / "token")
    token_file.create(path, entries)
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--devices", "8", "--exit-with-stdin"]
    command += ["--token-file", path, "--cache-dir", str(folder / "cache"), "--log-level", "error"]
    command += ["--array-dir", str(folder / "arrays"), "--metrics-port", str(metrics_port := free_port())]
    command += ["--max-bytes-in-flight", str(ALLOWED_BYTES), "--max-call-bytes", str(ALLOWED_BYTES // 4)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    log = (folder / "log").open("w")
    with log, subprocess.Popen(command, stdin=-1, stdout=-1, stderr=log, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        if not match:
            sys.exit((folder / "log").read_text())
        tokens = {entry.name: entry.token for entry in entries}
        yield Server(match[0], f"127.0.0.1:{metrics_port}", process.pid, tokens)
        process.stdin.close()


@contextmanager
def attacker(name: str, server: Server) -> Iterator[None]:
    """Attacks from another process for the time of the body."""
    command = [sys.executable, __file__, "--attack", name, server.address, server.metrics]
    with subprocess.Popen(command, env={**os.environ, "SHARDCALL_TOKEN": server.tokens["attacker"]}) as process:
        try:
            yield
        finally:
            process.kill()


def free_port() -> int:
    """Returns a port that no process uses."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()

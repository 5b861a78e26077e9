"""Calls of one client beside attacks of another.

    python benchmarks/attacks.py [--rounds N] [--seconds N] [--output FILE.md] [ATTACK...]

Two principals use a server of 8 devices. One makes small cached calls and one call with a new program every second. The
other attacks it, from a process of its own. In each round every attack follows a quiet time, and so do two loops that
use processors and no server: they are the floor of what any process on this machine costs the first client. Ratios are
to the quiet time before. benchmarks/README.md explains the rows.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

import shardcall as sc
from harness.report import Claim, claim_table, machine, milliseconds, ratio_claim, table
from shardcall_core.wire import token_file

CALL_PERIOD_S = 0.02
PROGRAM_PERIOD_S = 1.0
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
    parser.add_argument("--attack", nargs=2, metavar=("NAME", "ADDRESS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        attack(*arguments.attack)
        return
    lines = report(arguments.attacks or list(ATTACKS), arguments.rounds, arguments.seconds)
    print("\n".join(lines))
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")


def report(names: list[str], rounds: int, seconds: float) -> list[str]:
    """Returns the lines of the report."""
    figures: defaultdict[str, list[tuple[float, float, float, float]]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder)) as (address, tokens),
        sc.connect(address, token=tokens["victim"]) as victim,
        sc.connect(address, token=tokens["admin"]) as admin,
    ):
        sizes = count(1000)
        measure(victim, sizes, 3.0)
        for _ in range(rounds):
            for name in names:
                quiet = measure(victim, sizes, seconds)
                with attacker(name, address, tokens["attacker"]):
                    time.sleep(START_S)
                    attacked = measure(victim, sizes, seconds)
                figures[name].append((*quiet, *attacked))
                time.sleep(1.0)
        restarts = admin.usage().mesh.restarts
    rows = [["beside", "cached call, p99", "ratio", "new program, median", "ratio"]]
    claims: list[Claim] = []
    for name, samples in figures.items():
        quiet_p99, quiet_new, p99, new = (statistics.median(column) for column in zip(*samples, strict=True))
        ratios = [
            statistics.median(b / a for a, _, b, _ in samples),
            statistics.median(d / c for _, c, _, d in samples),
        ]
        rows.append(
            [
                name,
                f"{milliseconds(quiet_p99)} -> {milliseconds(p99)}",
                f"{ratios[0]:.2f}",
                f"{milliseconds(quiet_new)} -> {milliseconds(new)}",
                f"{ratios[1]:.2f}",
            ]
        )
        claims.append(ratio_claim(f"{name}: p99 of cached calls ÷ quiet", 2.0, ratios[0]))
        claims.append(ratio_claim(f"{name}: new programs ÷ quiet", 3.0, ratios[1]))
    return [
        *machine(["jax", "jaxlib", "grpcio", "numpy"], {"rounds": str(rounds), "seconds": f"{seconds:g}"}),
        "",
        *table(rows),
        "",
        f"Restarts of the mesh: {restarts}.",
        "",
        *claim_table(claims),
    ]


def measure(client: sc.Client, sizes: Iterator[int], seconds: float) -> tuple[float, float]:
    """Returns the 99th percentile of cached calls and the median of calls with new programs, in seconds."""
    small, new, end = [], [], time.monotonic() + seconds
    x = np.arange(8.0)

    def call_new() -> None:
        while time.monotonic() < end:
            began = time.perf_counter()
            client.flip(np.arange(next(sizes)), strategy="gathered", timeout=120)
            new.append(time.perf_counter() - began)
            time.sleep(max(0.0, PROGRAM_PERIOD_S - new[-1]))

    thread = threading.Thread(target=call_new)
    thread.start()
    while time.monotonic() < end:
        began = time.perf_counter()
        client.diff(x, timeout=120)
        small.append(time.perf_counter() - began)
        time.sleep(max(0.0, CALL_PERIOD_S - small[-1]))
    thread.join()
    return float(np.quantile(small, 0.99)), statistics.median(new)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the address of a server, and the tokens of its principals."""
    (folder / "crashing_kernel.py").write_text(CRASHING_KERNEL)
    metadata = folder / "crashing_kernel-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: crashing-kernel\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[shardcall.kernels]\ncrashing = crashing_kernel:Crashing\n")
    scopes = {"victim": ["run", "arrays"], "attacker": ["run", "arrays"], "admin": ["run", "arrays", "admin"]}
    entries = [token_file.Entry.make(name, scopes[name]) for name in scopes]
    path = str(folder / "state" / "token")
    token_file.create(path, entries)
    command = [sys.executable, "-m", "shardcall.cli", "serve", "--port", "0", "--devices", "8", "--exit-with-stdin"]
    command += ["--token-file", path, "--cache-dir", str(folder / "cache"), "--log-level", "error"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    log = (folder / "log").open("w")
    with log, subprocess.Popen(command, stdin=-1, stdout=-1, stderr=log, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        match = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        if not match:
            sys.exit((folder / "log").read_text())
        yield match[0], {entry.name: entry.token for entry in entries}
        process.stdin.close()


@contextmanager
def attacker(name: str, address: str, token: str) -> Iterator[None]:
    """Attacks from another process for the time of the body."""
    command = [sys.executable, __file__, "--attack", name, address]
    with subprocess.Popen(command, env={**os.environ, "SHARDCALL_TOKEN": token}) as process:
        try:
            yield
        finally:
            process.kill()


def attack(name: str, address: str) -> None:
    """Attacks until this process is killed."""
    threads, work = ATTACKS[name]
    with sc.connect(address, retries=False) as client:

        def repeat(number: int) -> None:
            for step in count():
                with suppress(sc.ShardcallError):
                    work(client, number * 100_000 + step)

        for number in range(threads):
            threading.Thread(target=partial(repeat, number), daemon=True).start()
        threading.Event().wait()


def spin(_client: sc.Client, number: int) -> None:
    """Uses a processor and no server."""
    x = np.full(1 << 16, float(number))
    for _ in range(100):
        np.sin(x)  # without the lock of the interpreter


def large_values(client: sc.Client, number: int) -> None:
    """Has a program refused that has a value of 8 TiB squared."""
    function = client.jit(lambda x: client.xp.linalg.svdvals(client.xp.broadcast_to(x[number % 7], (1, 2**40))))
    function(np.arange(8.0)).get()


def new_programs(client: sc.Client, number: int) -> None:
    """Compiles a program of fifty functions."""

    def function(x: sc.RemoteArray) -> sc.RemoteArray:
        for step in range(50):
            x = client.xp.sin(x) * (step + 1.5) + client.xp.roll(x, 1)
        return x

    client.jit(function)(np.arange(2.0 + number % 90_000)).get()


def abandoned_programs(client: sc.Client, number: int) -> None:
    """Begins a program that takes half a second to compile and gives up."""
    client.call("svd", np.ones((3 + number % 300, 3 + number // 300 % 300)), timeout=0.05)


def crashes(client: sc.Client, number: int) -> None:
    """Has the compiler crash."""
    client.call("crashing", np.arange(float(number + 1)))


def waiting_operands(client: sc.Client, _number: int) -> None:
    """Submits calls with 4 MiB of operands, which are forgotten."""
    x = np.ones(1 << 19)
    for _ in range(64):
        client.submit("diff", x)


def long_programs(client: sc.Client, _number: int) -> None:
    """Runs a product that takes a second or so."""
    with _lock:
        if not _operands:
            _operands.append(client.put(np.ones((1500, 1500))))
    client.matmul(_operands[0], _operands[0], keep=True)


_lock = threading.Lock()
_operands: list[sc.RemoteArray] = []

ATTACKS: dict[str, tuple[int, Callable[[sc.Client, int], None]]] = {
    "two loops": (2, spin),
    "large values": (4, large_values),
    "new programs": (6, new_programs),
    "abandoned programs": (16, abandoned_programs),
    "crashes of the compiler": (4, crashes),
    "waiting operands": (4, waiting_operands),
    "long programs": (12, long_programs),
}
"""The threads of an attack, and what each repeats."""


if __name__ == "__main__":
    main()

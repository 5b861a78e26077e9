"""A mixed load with faults, for long enough to show leaks; and a build that leaks, which must be detected."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from faults.gauges import AllowedGrowth, Gauges, drift_report, growth
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc

pytestmark = [pytest.mark.soak, pytest.mark.long]

_CLIENTS = 2
_DURATION_S = 3600.0
_EVERY_S = 0.25
_KILL_EVERY_S = 60.0
_MIN_S = 8.0  # a worker that was killed sooner shows nothing
_PATIENCE_S = 300.0
_TESTS = Path(__file__).parents[1]
_BENCHMARKS = _TESTS.parent / "benchmarks"
_ATTACKS = ("large values", "new programs", "abandoned programs", "waiting operands", "long programs")
_ATTACK_S = _KILL_EVERY_S
_CALM_S = 240.0  # without attacks and kills, behind the others
_FLAGS = ("--max-cached-programs", "48", "--lease-s", "5", "--trim-after-s", "1", "--log-level", "error")

_LEAKS = """
import os, sys, threading, time

_kept, _last = [], [0.0]

def _leak():
    if time.monotonic() - _last[0] < 0.05:
        return
    _last[0] = time.monotonic()
    _kept.append(b"x" * (1 << 20))
    if "serve" in sys.orig_argv:
        _kept.append(os.dup(0))
        threading.Thread(target=threading.Event().wait, daemon=True).start()

if {"serve", "shardcall_server.mesh.start"} & {*sys.orig_argv}:
    from shardcall_server.link import framing

    _send = framing.Link.send

    def send(self, *args, **kwargs):
        _leak()
        return _send(self, *args, **kwargs)

    framing.Link.send = send
"""
"""A sitecustomize for a server that forgets something with every message between its processes."""


@dataclass
class Watch:
    """Samples of a server under load.

    Attributes:
        front_end: looks at the front end.
        workers: looks at the worker of each epoch.
        counts: the number of the clients' operations, by kind.
        faults: descriptions of the faults that they saw.
        kills: the number of kills of the worker.
    """

    front_end: list[Gauges] = field(default_factory=list)
    workers: dict[int, list[Gauges]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    kills: int = 0

    def growth(self) -> list[str]:
        """Describes the resources that grew, by process."""
        growing = [f"front end: {what}" for what in growth(self.front_end, AllowedGrowth())]
        for samples in self._long():
            growing += [f"worker: {what}" for what in growth(samples, AllowedGrowth())]
        return growing

    def is_conclusive(self) -> bool:
        """True if a worker was sampled for long enough to show a leak."""
        return bool(self._long())

    def _long(self) -> list[list[Gauges]]:
        return [samples for samples in self.workers.values() if samples[-1].at_s - samples[0].at_s >= _MIN_S]


def _started(pid: int) -> int:
    """The start time of a process, in ticks since the system's start."""
    with suppress(FileNotFoundError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return sys.maxsize


def _worker(server: ServerProcess) -> int | None:
    """The worker that serves: the eldest child, since a spare one is started later."""
    return min(server.worker_pids(), key=_started, default=None)


@contextmanager
def _load(address: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Runs clients in separate processes until the body ends; they then report."""
    path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    script = str(Path(__file__).with_name("soak_load.py"))
    clients = [
        subprocess.Popen(
            [sys.executable, script, address, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for seed in range(count)
    ]
    try:
        yield clients
    finally:
        for client in clients:
            client.kill()
            client.wait()
            assert client.stdin
            assert client.stdout
            client.stdin.close()
            client.stdout.close()


@contextmanager
def _attacks(address: str) -> Iterator[None]:
    """Attacks the server with the token of another principal, in one way after the other."""
    never, environment = threading.Event(), {**os.environ, "SHARDCALL_TOKEN": token_of("guest")}

    def attack() -> None:
        for name in cycle(_ATTACKS):
            command = [sys.executable, str(_BENCHMARKS / "attacks.py"), "--attack", name, address]
            with subprocess.Popen(command, env=environment) as process:
                has_ended = never.wait(_ATTACK_S)
                assert process.poll() is None, f"the attack by {name} ended"
                process.kill()
            if has_ended:
                return

    with ThreadPoolExecutor(1) as pool:
        attacking = pool.submit(attack)
        try:
            yield
        finally:
            never.set()
        attacking.result(60)


def _watch(server: ServerProcess, duration_s: float, kill_at_s: list[float], every_s: float = _EVERY_S) -> Watch:
    """Puts a load on a server for a time, kills its worker at some moments, and samples its resources.

    It lasts longer where the last worker took long to start: what a worker holds counts from when it answers.
    """
    watch, began, never = Watch(), time.monotonic(), threading.Event()
    with _load(server.address, _CLIENTS) as clients, sc.connect(server.address, shared_memory=False) as observer:
        restarts = observer.usage().mesh.restarts
        while (now := time.monotonic() - began) < duration_s or not watch.is_conclusive():
            assert now < duration_s + _PATIENCE_S, "no worker was there for long"
            watch.front_end.append(Gauges.of(server.process.pid, now))
            pid, mesh = _worker(server), observer.usage().mesh
            with suppress(OSError, KeyError):  # it has just ended
                if pid is not None and mesh.ready and mesh.restarts - restarts == watch.kills:
                    watch.workers.setdefault(pid, []).append(Gauges.of(pid, now))
            if kill_at_s and now > kill_at_s[0] and pid is not None:
                os.kill(pid, signal.SIGKILL)
                watch.kills += 1
                del kill_at_s[0]
            assert all(client.poll() is None for client in clients), "a client ended"
            never.wait(every_s)
        for client in clients:
            report = json.loads(client.communicate(timeout=120)[0])
            watch.counts.update(report["counts"])
            watch.faults += report["faults"]
    return watch


def test_nothing_grows_under_a_mixed_load_with_faults(figure):
    kills = [t * _KILL_EVERY_S for t in range(1, int(_DURATION_S / _KILL_EVERY_S))]
    with running_server(*_FLAGS, why="it is under load for an hour") as server:
        with _attacks(server.address):
            watch = _watch(server, _DURATION_S, kills, 0.5)
        # An attack changes what the allocator of a worker holds by hundreds of MiB within seconds.
        calm = _watch(server, _CALM_S, [1.0], 0.5)
        watch.workers, watch.faults = calm.workers, watch.faults + calm.faults
        longest = max(watch.workers.values(), key=len)
        figure(
            f"{_DURATION_S:.0f} s, {watch.kills} kills: {', '.join(f'{n} {c}' for n, c in watch.counts.most_common())}"
        )
        figure(f"front end: {drift_report(watch.front_end)}")
        figure(f"worker of the longest epoch: {drift_report(longest)}")
        assert not watch.faults, watch.faults[:10]
        assert watch.kills
        drawn = {"small", "streamed", "shared", "kept", "planned", "cancelled", "bad input"}
        assert watch.counts.keys() >= drawn
        with sc.connect(server.address, shared_memory=False) as client:
            wait_for(lambda: holds_nothing(client))
            usage = client.usage()
            assert not usage.queued_calls
            assert not usage.program_device_bytes
        assert not watch.growth()


def test_a_build_that_leaks_is_detected(tmp_path, monkeypatch, figure):
    (tmp_path / "sitecustomize.py").write_text(_LEAKS)
    with monkeypatch.context() as environment:
        before = os.environ.get("PYTHONPATH", "")
        environment.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [before])]))
        with running_server(*_FLAGS, why="it is under load for an hour") as server:
            environment.setenv("PYTHONPATH", before)
            growing = _watch(server, 14.0, []).growth()
    figure("; ".join(growing))
    for leak in ("front end: memory_bytes", "front end: descriptors", "front end: threads", "worker: memory_bytes"):
        assert any(what.startswith(leak) for what in growing), (leak, growing)

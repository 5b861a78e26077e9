"""A mixed load with faults, for long enough to show leaks; and a build that leaks, which must be detected."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from queue import SimpleQueue

import grpc
import numpy as np
import pytest
from end_to_end.messages import chunk, execute, header, open_channel, operand, token_of
from end_to_end.processes import in_thread, wait_for
from faults.bad_input_rows import send
from faults.callers import (
    ENDS_OF_THE_MESH,
    Body,
    Callers,
    diff_of_one_that_stays,
    diff_on,
    matmul,
    put_and_get,
    small_diff,
)
from faults.gauges import Gauges, growth
from faults.long_programs import the_worker
from faults.test_bad_input import TABLES, check
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc
from shardcall.v1 import kernel_service_pb2_grpc

pytestmark = [pytest.mark.soak, pytest.mark.long]

_DURATION_S = 3600.0
_EVERY_S = 0.25
_KILL_EVERY_S = 60.0
_MIN_S = 8.0  # a worker that was killed sooner shows nothing
_PATIENCE_S = 300.0
_ATTACKS_SCRIPT = Path(__file__).parents[2] / "benchmarks" / "attacks.py"
_ATTACKS = ("large values", "new programs", "abandoned programs", "waiting operands", "long programs")
_ATTACK_S = _KILL_EVERY_S
_CALM_S = 240.0  # without attacks and kills, behind the others
_FLAGS = ("--max-cached-programs", "48", "--lease-s", "5", "--trim-after-s", "1", "--log-level", "error")
_SHAPES = 40
_BEARABLE = ENDS_OF_THE_MESH | {"SERVER_BUSY", "QUOTA_EXCEEDED"}
_ROWS = [row for name, table in TABLES.items() if name != "arrays" for row in table]

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


def _new_program(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((int(rng.integers(2, 2 + _SHAPES)), 4))
    assert client.plan("sum", sc.Array((len(x), 8), "float32"), axis=0).kernel == "sum"
    return np.array_equal(client.diff(x, axis=0).array, np.diff(x, axis=0))


def _large(client: sc.Client, rng: np.random.Generator) -> bool:
    x = rng.standard_normal((1024, 256))
    return np.array_equal(client.diff(x, axis=0, mesh=sc.Mesh(x=8)).array, np.diff(x, axis=0))


def _cancelled(channel: grpc.Channel, _: sc.Client, rng: np.random.Generator) -> bool:
    """Cancels a unary call, or a stream in the middle of its upload, after a random time."""
    stub, rest = kernel_service_pb2_grpc.KernelServiceStub(channel), SimpleQueue[None]()
    if rng.random() < 0.5:
        call = stub.Execute.future(execute(operand(rng.standard_normal(512))), timeout=60)
    else:
        begun = [header((1 << 17,)), chunk(0, 0, 1 << 19)]
        call = stub.ExecuteStream(chain(begun, iter(rest.get, None)), timeout=60)
    time.sleep(float(rng.exponential(0.01)))  # the moment is under test here
    call.cancel()
    rest.put(None)
    return True


def _bad_input(channel: grpc.Channel, _: sc.Client, rng: np.random.Generator) -> bool:
    row = _ROWS[rng.integers(len(_ROWS))]
    try:
        list(send(channel, row.method, row.request, row.metadata))
    except grpc.RpcError as error:
        # The mesh was killed under it, or other calls take the server's memory.
        if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}:
            check(row, error)
        return True
    return False


def _bodies(channel: grpc.Channel) -> list[Body]:
    return [
        *(_large, _large, small_diff, _new_program, diff_on(8), matmul, put_and_get, diff_of_one_that_stays),
        *(partial(_cancelled, channel), partial(_bad_input, channel)),
    ]


@dataclass
class Watch:
    """Samples of a server under load.

    Attributes:
        callers: its clients.
        front_end: looks at the front end.
        workers: looks at the worker of each epoch.
    """

    callers: Callers = field(default_factory=lambda: Callers(_BEARABLE))
    front_end: list[Gauges] = field(default_factory=list)
    workers: dict[int, list[Gauges]] = field(default_factory=dict)

    def growth(self) -> list[str]:
        """Describes the resources that grew, by process."""
        growing = [f"front end: {what}" for what in growth(self.front_end)[0]]
        return growing + [f"worker: {what}" for samples in self.conclusive() for what in growth(samples)[0]]

    def conclusive(self) -> list[list[Gauges]]:
        """The samples of workers that were there for long enough to show a leak."""
        return [samples for samples in self.workers.values() if samples[-1].at_s - samples[0].at_s >= _MIN_S]


def _attack(address: str, ended: threading.Event) -> None:
    """Attacks the server with the token of another principal, in one way after the other, until an event is set."""
    environment = {**os.environ, "SHARDCALL_TOKEN": token_of("guest")}
    for name in cycle(_ATTACKS):
        command = [sys.executable, str(_ATTACKS_SCRIPT), "--attack", name, address]
        with subprocess.Popen(command, env=environment) as process:
            has_ended = ended.wait(_ATTACK_S)
            assert process.poll() is None, f"the attack by {name} ended"
            process.kill()
        if has_ended:
            return


def _watch(server: ServerProcess, duration_s: float, kill_at_s: Sequence[float], every_s: float = _EVERY_S) -> Watch:
    """Puts a load on a server for a time, kills its worker at some moments, and samples its resources.

    It lasts longer where the last worker took long to start: what a worker holds counts from when it answers.
    """
    watch, began, kills = Watch(), time.monotonic(), 0
    with (
        open_channel(server.address) as channel,
        watch.callers.calling(server.address, _bodies(channel)) as callers,
        sc.connect(server.address, shared_memory=False) as observer,
    ):
        restarts = observer.usage().mesh.restarts
        while (now := time.monotonic() - began) < duration_s or not watch.conclusive():
            assert now < duration_s + _PATIENCE_S, "no worker was there for long"
            watch.front_end.append(Gauges.of(server.process.pid, now))
            mesh = observer.usage().mesh
            with suppress(OSError, KeyError, ValueError):  # it has just ended
                pid = the_worker(server)
                if mesh.ready and mesh.restarts - restarts == kills:
                    watch.workers.setdefault(pid, []).append(Gauges.of(pid, now))
                if kills < len(kill_at_s) and now > kill_at_s[kills]:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
            time.sleep(every_s)  # between samples
    assert not callers.wrong, callers.wrong[:10]
    assert {call.caller for call in callers.right()} == {*range(len(_bodies(channel)))}
    assert kills or not kill_at_s
    return watch


def test_nothing_grows_under_a_mixed_load_with_faults(figure):
    kills = [t * _KILL_EVERY_S for t in range(1, int(_DURATION_S / _KILL_EVERY_S))]
    with running_server(*_FLAGS, why="it is under load for an hour") as server:
        with in_thread(partial(_attack, server.address)):
            watch = _watch(server, _DURATION_S, kills, 0.5)
        # An attack changes what the allocator of a worker holds by hundreds of MiB within seconds.
        watch.workers = _watch(server, _CALM_S, [1.0], 0.5).workers
        figure(f"{_DURATION_S:.0f} s, {len(kills)} kills: {watch.callers}")
        figure(f"front end in an hour: {growth(watch.front_end)[1]}")
        figure(f"worker in an hour: {growth(max(watch.workers.values(), key=len))[1]}")
        with sc.connect(server.address, shared_memory=False) as client:
            wait_for(lambda: holds_nothing(client))
            usage = client.usage()
            assert not usage.queued_calls
            assert not usage.program_device_bytes
        assert not watch.growth()


def test_a_build_that_leaks_is_detected(tmp_path, monkeypatch, figure):
    (tmp_path / "sitecustomize.py").write_text(_LEAKS)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    with running_server(*_FLAGS, why="its build leaks") as server:
        growing = _watch(server, 14.0, []).growth()
    figure("; ".join(growing))
    for leak in ("front end: memory_bytes", "front end: descriptors", "front end: threads", "worker: memory_bytes"):
        assert any(what.startswith(leak) for what in growing), (leak, growing)

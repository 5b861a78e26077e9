"""Cases of benchmarks/hosts.py, and the bytes of each that a host holds and returns."""

from __future__ import annotations

import math
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from host_clusters import Cluster

import shardcall as sc
from shardcall import P

_BLOCK, _FIRST = 20, 3  # calls one after the other, behind some more: a process that has slept is slow at first
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes:
        title: in tables.
        kernel: its name.
        operands: arrays and numbers.
        how: mesh, specs, parameters, strategy.
    """

    title: str
    kernel: str
    operands: tuple[Any, ...]
    how: Mapping[str, Any]

    def ask(self, cluster: Cluster) -> sc.Result:
        """The call, its result read."""
        result = cluster.client.call(self.kernel, *self.operands, **self.how)
        assert result.array is not None
        return result

    def host_bytes(self, cluster: Cluster) -> tuple[list[int], list[int]]:
        """By host: the bytes of the different blocks of operands that its devices hold, and of results that it returns.

        Counted from what the client says of the plan, which is another count than the server's own.
        """
        plan = cluster.client.plan(self.kernel, *self.operands, **self.how)
        host = {device.id: device.process_index for device in cluster.client.server_info().devices}
        held, returned = [0] * cluster.shape.hosts, [0] * cluster.shape.hosts
        for kind, placements in (("operand", plan.operands), ("result", plan.results)):
            for i, placement in enumerate(placements):
                if placement is None:
                    continue
                grid = plan.blocks(f"{kind} {i}")
                for block, devices in grid.holders.items():
                    spans = [grid.span(axis, index) for axis, index in enumerate(block)]
                    nbytes = placement.type.dtype.itemsize * math.prod(high - low for low, high in spans)
                    holders = {host[device] for device in devices}
                    for holder in holders if kind == "operand" else ():
                        held[holder] += nbytes
                    if kind == "result":
                        returned[min(holders)] += nbytes
        return held, returned


def small(kernel: str, devices: int) -> Case:
    """A call of 8 × 8 numbers on a mesh of so many devices: all that it takes is overhead."""
    x = np.arange(64.0).reshape(8, 8)
    how = {"mesh": sc.Mesh(x=devices), "spec": P("x", None)}
    if kernel == "add":
        return Case("add, no collective", "add", (x, 1.0), how)
    return Case("diff, a collective", "diff", (x,), {**how, "axis": 0, "prepend": 0.0, "strategy": "halo"})


def large(size: int, devices: int) -> list[Case]:
    """A difference along the sharded axis, and products with and without a collective."""
    random_numbers = np.random.default_rng(0)
    x = random_numbers.standard_normal((size, size))
    lhs, rhs = random_numbers.standard_normal((2, size // 2, size // 2)).astype(np.float32)
    mesh = sc.Mesh(x=devices)
    rows: dict[str, Any] = {"mesh": mesh, "in_specs": [P("x", None), P()]}
    return [
        Case("diff", "diff", (x,), {"mesh": mesh, "spec": P("x", None), "axis": 0, "prepend": 0.0, "strategy": "halo"}),
        Case("matmul", "matmul", (lhs, rhs), {**rows, "out_specs": [P("x", None)]}),
        Case("collective_matmul", "collective_matmul", (lhs, rhs), {**rows, "axis_name": "x", "strategy": "ring"}),
    ]


@dataclass
class Samples:
    """Times of the calls of one case on one server.

    Attributes:
        round_trips: the medians of the rounds, in seconds.
        timings: of all calls.
        cpu: seconds a call, by round, of each kind of process.
    """

    round_trips: list[float] = field(default_factory=list)
    timings: list[sc.Timing] = field(default_factory=list)
    cpu: list[dict[str, float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Of the rounds, in seconds."""
        return statistics.median(self.round_trips)

    def phase(self, name: str) -> float:
        """The median of a phase, in seconds."""
        seconds: list[float] = [getattr(timing, name) for timing in self.timings]
        return statistics.median(seconds)

    def cpu_us(self, kind: str) -> float:
        """The median of the rounds' processor time a call, in microseconds."""
        return statistics.median(of[kind] for of in self.cpu) * 1e6


SamplesByCase = dict[tuple[str, str], Samples]
"""By the server's shape and the case's title."""


def over(measured: SamplesByCase, of: tuple[str, str], base: tuple[str, str]) -> float:
    """By how many seconds one is slower than another: the median of the differences within rounds."""
    pairs = zip(measured[of].round_trips, measured[base].round_trips, strict=True)
    return statistics.median(a - b for a, b in pairs)


def run_rounds(
    pairs: Sequence[tuple[Cluster, Case]], rounds: int, calls: int = _BLOCK, *, real_time: bool = False
) -> SamplesByCase:
    """Asks every case of every server once a round, in an order drawn anew; the round before the first warms up.

    Args:
        pairs: the servers, each with a case.
        rounds: that count.
        calls: one after the other, of a server in a round.
        real_time: whether nothing else of the machine may hold them up; then others get a while between.
    """
    measured: SamplesByCase = {(str(cluster.shape), case.title): Samples() for cluster, case in pairs}
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}", end="\r", file=sys.stderr)
        for cluster, case in random.sample(pairs, len(pairs)):
            if real_time:
                cluster.hurry()
                time.sleep(_PAUSE_S)
            if calls > _FIRST:
                for _ in range(_FIRST):
                    case.ask(cluster)
            before = cluster.cpu_seconds()
            seconds, timings = [], []
            for _ in range(calls):
                began = time.perf_counter()
                timings.append(case.ask(cluster).timing)
                seconds.append(time.perf_counter() - began)
            if number:
                samples = measured[str(cluster.shape), case.title]
                samples.round_trips.append(statistics.median(seconds))
                samples.timings += timings
                after = cluster.cpu_seconds()
                samples.cpu.append({kind: (after[kind] - before[kind]) / calls for kind in after})
    return measured

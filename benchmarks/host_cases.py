"""Cases of benchmarks/hosts.py, and the bytes of their arrays that each host holds and returns."""

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

_BLOCK, _FIRST = 20, 3  # calls in sequence, after some that do not count: a process that has slept is slow at first
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes:
        title: the title in tables.
        kernel: the name of the kernel.
        operands: the operands, arrays and numbers.
        how: the mesh, specs, parameters and strategy.
    """

    title: str
    kernel: str
    operands: tuple[Any, ...]
    how: Mapping[str, Any]

    def ask(self, cluster: Cluster) -> sc.Result:
        """Makes the call and reads its result."""
        result = cluster.client.call(self.kernel, *self.operands, **self.how)
        assert result.array is not None
        return result

    def host_bytes(self, cluster: Cluster) -> tuple[list[int], list[int]]:
        """Returns, for each host, the bytes of the distinct operand blocks that its devices hold, and of its results.

        They are computed from the plan of the client, independently of the server's own counts.
        """
        plan = cluster.client.plan(self.kernel, *self.operands, **self.how)
        host = {device.id: device.process_index for device in cluster.client.server_info().devices}
        held, returned = [0] * cluster.shape.hosts, [0] * cluster.shape.hosts
        for role, placements in (("operand", plan.operands), ("result", plan.results)):
            for i, placement in enumerate(placements):
                if placement is None:
                    continue
                grid = plan.blocks(f"{role} {i}")
                for block, devices in grid.holders.items():
                    spans = [grid.span(axis, index) for axis, index in enumerate(block)]
                    nbytes = placement.type.dtype.itemsize * math.prod(high - low for low, high in spans)
                    holders = {host[device] for device in devices}
                    for holder in holders if role == "operand" else ():
                        held[holder] += nbytes
                    if role == "result":
                        returned[min(holders)] += nbytes
        return held, returned


def small(kernel: str, devices: int) -> Case:
    """Returns a call with 8 × 8 numbers, whose time is overhead."""
    x = np.arange(64.0).reshape(8, 8)
    how = {"mesh": sc.Mesh(x=devices), "spec": P("x", None)}
    if kernel == "add":
        return Case("add, no collective", "add", (x, 1.0), how)
    return Case("diff, a collective", "diff", (x,), {**how, "axis": 0, "prepend": 0.0, "strategy": "halo"})


def large(size: int, devices: int) -> list[Case]:
    """Returns a difference along the sharded axis, and products with and without a collective."""
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
        timings: the timings of all calls.
        cpu: the processor time of a call in seconds, by round, for the front end, the agents and the workers.
    """

    round_trips: list[float] = field(default_factory=list)
    timings: list[sc.Timing] = field(default_factory=list)
    cpu: list[dict[str, float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the rounds, in seconds."""
        return statistics.median(self.round_trips)

    def phase(self, name: str) -> float:
        """Returns the median of a phase, in seconds."""
        seconds: list[float] = [getattr(timing, name) for timing in self.timings]
        return statistics.median(seconds)

    def cpu_us(self, process: str) -> float:
        """Returns the median of the processor time of a call, in microseconds."""
        return statistics.median(of[process] for of in self.cpu) * 1e6


SamplesByCase = dict[tuple[str, str], Samples]
"""By the server's shape and the case's title."""


def extra_seconds(measured: SamplesByCase, of: tuple[str, str], base: tuple[str, str]) -> float:
    """Returns how much longer one case takes than another, in seconds: the median of the differences in the rounds."""
    pairs = zip(measured[of].round_trips, measured[base].round_trips, strict=True)
    return statistics.median(a - b for a, b in pairs)


def run_rounds(
    pairs: Sequence[tuple[Cluster, Case]], rounds: int, calls: int = _BLOCK, *, real_time: bool = False
) -> SamplesByCase:
    """Runs every case on every server once a round, in random order, after a round that warms up.

    Args:
        pairs: the servers, each with a case.
        rounds: the number of rounds that count.
        calls: the number of calls in sequence of one pair in a round.
        real_time: whether the servers have real-time priority; other processes then get time between the pairs.
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
                samples.cpu.append({process: (after[process] - before[process]) / calls for process in after})
    return measured

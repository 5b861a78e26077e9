"""What benchmarks/hosts.py asks of its servers, and what of that each host holds and gives."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import shardcall as sc
from host_clusters import Cluster
from shardcall import P

_BLOCK = 25  # calls one after the other: a process that has slept is slow at first


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
        """By host: the bytes of the operands' different blocks that its devices hold, and of the results' that it gives.

        Counted from what the client says of the plan, which is another count than the server's own.
        """
        plan = cluster.client.plan(self.kernel, *self.operands, **self.how)
        held, given = [0] * cluster.shape.hosts, [0] * cluster.shape.hosts
        titles = [f"operand {i}" for i, x in enumerate(plan.operands) if x is not None]
        titles += [f"result {i}" for i in range(len(plan.results))]
        for title in titles:
            grid, (_, placement) = plan.blocks(title), plan._find(title)
            for block, holders in grid.holders.items():
                spans = [grid.span(axis, index) for axis, index in enumerate(block)]
                nbytes = placement.type.dtype.itemsize * int(np.prod([high - low for low, high in spans]))
                hosts = sorted({device // cluster.shape.devices for device in holders})
                for host in hosts if title.startswith("operand") else []:
                    held[host] += nbytes
                if title.startswith("result"):
                    given[hosts[0]] += nbytes
        return held, given


def small(kernel: str, devices: int) -> Case:
    """A call of 8 × 8 numbers on a mesh of so many devices: all that it takes is overhead."""
    x = np.arange(64.0).reshape(8, 8)
    how = {"mesh": sc.Mesh(x=devices), "spec": P("x", None)}
    if kernel == "add":
        return Case("add, no collective", "add", (x, 1.0), how)
    return Case("diff, a collective", "diff", (x,), {**how, "axis": 0, "prepend": 0.0, "strategy": "halo"})


def large(size: int, devices: int) -> list[Case]:
    """A difference along the split axis, and products with and without a collective."""
    random_numbers = np.random.default_rng(0)
    x = random_numbers.standard_normal((size, size))
    lhs, rhs = random_numbers.standard_normal((2, size // 2, size // 2)).astype(np.float32)
    mesh = sc.Mesh(x=devices)
    rows: dict[str, Any] = {"mesh": mesh, "lhs_spec": P("x", None), "rhs_spec": P()}
    return [
        Case("diff", "diff", (x,), {"mesh": mesh, "spec": P("x", None), "axis": 0, "prepend": 0.0, "strategy": "halo"}),
        Case("matmul", "matmul", (lhs, rhs), {**rows, "out_spec": P("x", None)}),
        Case("collective_matmul", "collective_matmul", (lhs, rhs), {**rows, "axis_name": "x", "strategy": "ring"}),
    ]


@dataclass
class Samples:
    """What calls of one case took on one server.

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
        return statistics.median(getattr(timing, name) for timing in self.timings)

    def cpu_us(self, kind: str) -> float:
        """The median of the rounds' processor time a call, in microseconds."""
        return statistics.median(of[kind] for of in self.cpu) * 1e6


Found = dict[tuple[str, str], Samples]
"""By the server's shape and the case's title."""


def over(found: Found, of: tuple[str, str], base: tuple[str, str]) -> float:
    """By how many seconds one is slower than another: the median of the differences within rounds."""
    pairs = zip(found[of].round_trips, found[base].round_trips, strict=True)
    return statistics.median(a - b for a, b in pairs)


def in_turns(
    pairs: Sequence[tuple[Cluster, Case]], rounds: int, calls: int = _BLOCK
) -> Found:
    """Asks every case of every server once a round, in an order drawn anew; the round before the first warms up."""
    found: Found = {(str(cluster.shape), case.title): Samples() for cluster, case in pairs}
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}", end="\r", file=sys.stderr)
        for cluster, case in random.sample(pairs, len(pairs)):
            before = cluster.cpu_seconds()
            seconds, timings = [], []
            for _ in range(calls):
                began = time.perf_counter()
                timings.append(case.ask(cluster).timing)
                seconds.append(time.perf_counter() - began)
            if number:
                samples = found[str(cluster.shape), case.title]
                samples.round_trips.append(statistics.median(seconds))
                samples.timings += timings
                after = cluster.cpu_seconds()
                samples.cpu.append({kind: (after[kind] - before[kind]) / calls for kind in after})
    return found

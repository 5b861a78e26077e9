"""Cases of benchmarks/kernels.py: arrays that stay on the mesh, so that only kernels are timed."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import shardcall as sc

Ask = Callable[[], float]


@dataclass(frozen=True)
class Case:
    """One figure.

    Attributes:
        what: which kernel and strategy.
        mesh: its sizes, such as (8, 1); empty for what runs outside the server.
        ask: runs it once and returns the seconds of the kernel alone.
        notes: further columns of the table, such as bytes.
    """

    what: str
    mesh: tuple[int, ...]
    ask: Ask
    notes: tuple[str, ...] = ()


@dataclass
class Samples:
    """Seconds, one of each round."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Their median."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return low, high


def measure(cases: Sequence[Case], rounds: int) -> dict[int, Samples]:
    """Asks every case once a round, in an order drawn anew; a round before the first compiles and counts for nothing.

    Returns:
        The samples by the case's index in ``cases``.
    """
    for case in cases:
        case.ask()
        case.ask()
    samples = {i: Samples() for i in range(len(cases))}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", end="\r", file=sys.stderr)
        for i in random.sample(range(len(cases)), len(cases)):
            samples[i].seconds.append(cases[i].ask())
    return samples


class Asker:
    """Runs kernels on arrays that stay; each array is put once for each layout.

    Args:
        client: of the server.
    """

    def __init__(self, client: sc.Client) -> None:
        self.client = client
        self._put: dict[tuple[int, sc.Mesh, sc.PartitionSpec], sc.RemoteArray] = {}

    def here(self, array: np.ndarray, mesh: sc.Mesh, spec: sc.PartitionSpec) -> sc.RemoteArray:
        """The array in a layout."""
        key = (id(array), mesh, spec)
        if key not in self._put:
            self._put[key] = self.client.put(array, mesh=mesh, spec=spec)
        return self._put[key]

    def ask(self, kernel: str, *operands: Any, **how: Any) -> Ask:
        """Returns a function that runs a kernel once, its results kept and deleted, and returns its seconds."""

        def run() -> float:
            result = self.client.call(kernel, *operands, keep=True, **how)
            self.client.delete(*result.arrays)
            return result.timing.execute

        return run

    @contextmanager
    def layouts(self) -> Any:
        """Deletes what was put, after the body: the next section begins with empty devices."""
        try:
            yield self
        finally:
            self.client.delete(*self._put.values())
            self._put.clear()


def in_this_process(function: Callable[[], object]) -> Ask:
    """Returns a function that runs a NumPy function once; its result is fresh memory, as NumPy's are."""

    def run() -> float:
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    return run


def in_blocks(lhs: np.ndarray, rhs: np.ndarray, parts: tuple[int, int, int]) -> Callable[[], object]:
    """NumPy's product as devices would share it: that of each pair of blocks, one after the other, into warm memory.

    Nothing is moved and partial sums are not added up: what is compared is the division of the work alone.

    Args:
        lhs: [M, K].
        rhs: [K, N].
        parts: into how many parts M, K and N are cut.
    """
    rows, contracted, columns = parts
    left = [[np.ascontiguousarray(b) for b in np.split(band, contracted, 1)] for band in np.split(lhs, rows)]
    right = [[np.ascontiguousarray(b) for b in np.split(band, columns, 1)] for band in np.split(rhs, contracted)]
    pairs = [(left[i][k], right[k][j]) for i in range(rows) for k in range(contracted) for j in range(columns)]
    results = [a @ b for a, b in pairs]

    def run() -> None:
        for (a, b), result in zip(pairs, results, strict=True):
            np.matmul(a, b, out=result)

    return run


def mesh_of(sizes: tuple[int, ...]) -> sc.Mesh:
    """A mesh with axes x and y."""
    return sc.Mesh(dict(zip("xy", sizes, strict=False)))


def strategies_of(client: sc.Client, kernel: str, *operands: sc.RemoteArray, **how: Any) -> Mapping[str, sc.Plan]:
    """The plan of each strategy that serves a call."""
    plans = {}
    for strategy in client.kernel(kernel).strategies:
        try:
            plans[strategy.name] = client.plan(kernel, *operands, strategy=strategy.name, **how)
        except sc.ShardingError:
            continue
    return plans

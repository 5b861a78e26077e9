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
    """One row of a table.

    Attributes:
        what: the kernel and the strategy.
        mesh: the sizes of the mesh, such as (8, 1); empty for a case outside the server.
        ask: runs the case once and returns the seconds of the kernel alone.
        notes: further columns of the table, such as bytes.
    """

    what: str
    mesh: tuple[int, ...]
    ask: Ask
    notes: tuple[str, ...] = ()


@dataclass
class Samples:
    """The times of one case in seconds, one for each round."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile."""
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return low, high


def measure(cases: Sequence[Case], rounds: int) -> dict[int, Samples]:
    """Runs every case once a round, in random order, after runs that compile and do not count.

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
    """Runs kernels on arrays that stay on the mesh; each array is put once for each layout.

    Args:
        client: a client of the server.
    """

    def __init__(self, client: sc.Client) -> None:
        self.client = client
        self._put: dict[tuple[int, sc.Mesh, sc.PartitionSpec], sc.RemoteArray] = {}

    def here(self, array: np.ndarray, mesh: sc.Mesh, spec: sc.PartitionSpec) -> sc.RemoteArray:
        """Returns an array in a layout; puts it if necessary."""
        key = (id(array), mesh, spec)
        if key not in self._put:
            self._put[key] = self.client.put(array, mesh=mesh, spec=spec)
        return self._put[key]

    def ask(self, kernel: str, *operands: Any, **how: Any) -> Ask:
        """Returns a function that runs a kernel once, deletes its results and returns its seconds."""

        def run() -> float:
            result = self.client.call(kernel, *operands, keep=True, **how)
            self.client.delete(*result.arrays)
            return result.timing.execute

        return run

    @contextmanager
    def layouts(self) -> Any:
        """Deletes the arrays after the body, so that the next section begins with empty devices."""
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
    """Returns a function that computes NumPy's product of each pair of blocks in sequence, into touched memory.

    Nothing is transferred and partial sums are not added, so that only the division of the work is compared.

    Args:
        lhs: [M, K].
        rhs: [K, N].
        parts: the numbers of parts of M, K and N.
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
    """Returns a mesh with the axes x and y."""
    return sc.Mesh(dict(zip("xy", sizes, strict=False)))


def strategies_of(client: sc.Client, kernel: str, *operands: sc.RemoteArray, **how: Any) -> Mapping[str, sc.Plan]:
    """Returns the plan of each strategy that supports a call."""
    plans = {}
    for strategy in client.kernel(kernel).strategies:
        try:
            plans[strategy.name] = client.plan(kernel, *operands, strategy=strategy.name, **how)
        except sc.ShardingError:
            continue
    return plans

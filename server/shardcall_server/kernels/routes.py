"""Which rows of an array split along an axis travel from which block to which; free of JAX.

Letters as in `shardcall_server.kernels.layout`; R is the number of rows of the array.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Literal

Boundary = Literal["none", "zero", "periodic", "edge"]
"""What lies outside an array: nothing that is asked for, zeros, the array again, its first and last row again."""


@dataclass(frozen=True)
class Run:
    """Rows of one block that lie one after the other where they are needed.

    Attributes:
        slot: the place of the first among the rows needed.
        length: how many.
        source: whose block.
        row: the first, as the block counts.
        step: 1, or 0 where the one row is repeated.
    """

    slot: int
    length: int
    source: int
    row: int
    step: int

    @property
    def stop(self) -> int:
        """The row behind the last."""
        return self.row + (self.length - 1) * self.step + 1


@dataclass(frozen=True)
class Hop:
    """What travels one distance: ``length`` rows from ``starts[s]`` on, of every sender s of ``pairs``."""

    distance: int
    length: int
    starts: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


def runs_between(count: int, block: int, start: int, stop: int, boundary: Boundary) -> Iterator[Run]:
    """The rows from ``start`` to ``stop``, as far as they are true ones of ``count`` in blocks of ``block`` rows."""
    row = start
    while row < stop:
        true, length, step = _true_row(row, count, boundary)
        length = min(length, stop - row)
        if true is not None:
            source, local = divmod(true, block)
            length = min(length, block - local) if step else length
            yield Run(row - start, length, source, local, step)
        row += length


def _true_row(row: int, count: int, boundary: Boundary) -> tuple[int | None, int, int]:
    # The true row that a row is, if any; how many rows go on so; and how many true rows each is further on.
    if 0 <= row < count:
        return row, count - row, 1
    if count and boundary == "periodic":
        return row % count, count - row % count, 1
    length = -row if row < 0 else sys.maxsize
    if count and boundary == "edge":
        return (0 if row < 0 else count - 1), length, 0
    return None, length, 0


def hops_of(runs: Sequence[Sequence[Run]], block: int) -> tuple[Hop, ...]:
    """What must travel for every device to get its runs.

    Pairs of one distance, counted round, are a permutation: each sends to one and receives of one.
    """
    spans: dict[int, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
    for target, of_target in enumerate(runs):
        for run in of_target:
            pairs, pair = spans[(target - run.source) % len(runs)], (run.source, target)
            start, stop = pairs.get(pair, (run.row, run.stop))
            pairs[pair] = min(start, run.row), max(stop, run.stop)
    hops = []
    for distance, pairs in sorted(spans.items()):
        length = max(stop - start for start, stop in pairs.values())
        # A device that sends nothing slices as the others do, so that where they agree nothing is looked up.
        starts = [min(*(start for start, _ in pairs.values()), block - length)] * len(runs)
        for (source, _), (start, _) in pairs.items():
            starts[source] = min(start, block - length)
        hops.append(Hop(distance, length, tuple(starts), tuple(pairs)))
    return tuple(hops)


def order_of(
    hops: Sequence[Hop], runs: Sequence[Sequence[Run]], windows: Sequence[tuple[int, int]], boundary: Boundary
) -> tuple[int, ...] | None:
    """The hops in the order of their rows, if these are for every device, one hop after the other, what it needs."""
    hop_of = {hop.distance: hop for hop in hops}
    slots: dict[int, int] = {}
    found: Counter[tuple[int, int]] = Counter()  # rows by distance and target
    for target, of_target in enumerate(runs):
        for run in of_target:
            distance = (target - run.source) % len(runs)
            slot = run.slot - (run.row - hop_of[distance].starts[run.source])
            if slots.setdefault(distance, slot) != slot or run.stop - run.row != run.length:
                return None
            found[distance, target] += run.length
    order = sorted(range(len(hops)), key=lambda i: slots[hops[i].distance])
    ends = [0, *accumulate(hops[i].length for i in order)]
    if hops and [slots[hops[i].distance] for i in order] + [max(b - a for a, b in windows)] != ends:
        return None
    if boundary == "zero":  # a device gets zeros where nothing arrives, and nowhere else
        for hop, (target, (start, stop)) in product(hops, enumerate(windows)):
            arrives = not hop.distance or found[hop.distance, target]
            due = min(hop.length, stop - start - slots[hop.distance])
            if arrives and due > found[hop.distance, target]:
                return None
    return tuple(order)

"""Planning of row exchanges between the blocks of an array, without JAX.

Letters as in `shardcall_core.layouts.layout`; R is the number of rows of the array.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Literal

Boundary = Literal["none", "zero", "periodic", "edge"]
"""The values outside an array: unspecified, zeros, the array repeated, or its first and last row repeated."""


@dataclass(frozen=True)
class RowRange:
    """Rows of one block that are consecutive among the rows that a device needs.

    Attributes:
        slot: the index of the first among the rows needed.
        length: the number of rows.
        source: the index of the block.
        row: the index of the first in the block.
        step: 1, or 0 if the one row is repeated.
    """

    slot: int
    length: int
    source: int
    row: int
    step: int

    @property
    def stop(self) -> int:
        """The row after the last."""
        return self.row + (self.length - 1) * self.step + 1


@dataclass(frozen=True)
class PermuteStep:
    """The transfer over one distance: ``length`` rows from ``starts[s]`` on, of every sender s of ``pairs``."""

    distance: int
    length: int
    starts: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


def ranges_between(count: int, block: int, start: int, stop: int, boundary: Boundary) -> Iterator[RowRange]:
    """Yields the ranges of valid rows from ``start`` to ``stop``, of ``count`` in blocks of ``block`` rows."""
    row = start
    while row < stop:
        valid, length, step = _valid_row(row, count, boundary)
        length = min(length, stop - row)
        if valid is not None:
            source, local = divmod(valid, block)
            length = min(length, block - local) if step else length
            yield RowRange(row - start, length, source, local, step)
        row += length


def _valid_row(row: int, count: int, boundary: Boundary) -> tuple[int | None, int, int]:
    # The valid row that a row stands for, if any; the number of rows for which this continues; and the step between
    # them.
    if 0 <= row < count:
        return row, count - row, 1
    if count and boundary == "periodic":
        return row % count, count - row % count, 1
    length = -row if row < 0 else sys.maxsize
    if count and boundary == "edge":
        return (0 if row < 0 else count - 1), length, 0
    return None, length, 0


def permutes_of(ranges: Sequence[Sequence[RowRange]], block: int) -> tuple[PermuteStep, ...]:
    """Returns the permute steps that bring every device its row ranges.

    The pairs of one distance, modulo the number of devices, are a permutation: each device sends to one other.
    """
    spans: dict[int, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
    for target, of_target in enumerate(ranges):
        for row_range in of_target:
            pairs, pair = spans[(target - row_range.source) % len(ranges)], (row_range.source, target)
            start, stop = pairs.get(pair, (row_range.row, row_range.stop))
            pairs[pair] = min(start, row_range.row), max(stop, row_range.stop)
    permutes = []
    for distance, pairs in sorted(spans.items()):
        length = max(stop - start for start, stop in pairs.values())
        # A device that sends nothing uses the same start as others, so that equal starts need no table.
        starts = [min(*(start for start, _ in pairs.values()), block - length)] * len(ranges)
        for (source, _), (start, _) in pairs.items():
            starts[source] = min(start, block - length)
        permutes.append(PermuteStep(distance, length, tuple(starts), tuple(pairs)))
    return tuple(permutes)


def concatenation_of(
    permutes: Sequence[PermuteStep],
    ranges: Sequence[Sequence[RowRange]],
    windows: Sequence[tuple[int, int]],
    boundary: Boundary,
) -> tuple[int, ...] | None:
    """Returns the permutation of the steps whose concatenated rows are the result on every device; None if none is."""
    permute_of = {permute.distance: permute for permute in permutes}
    slots: dict[int, int] = {}
    received: Counter[tuple[int, int]] = Counter()  # rows by distance and target
    for target, of_target in enumerate(ranges):
        for row_range in of_target:
            distance = (target - row_range.source) % len(ranges)
            slot = row_range.slot - (row_range.row - permute_of[distance].starts[row_range.source])
            if slots.setdefault(distance, slot) != slot or row_range.stop - row_range.row != row_range.length:
                return None
            received[distance, target] += row_range.length
    concatenation = sorted(range(len(permutes)), key=lambda i: slots[permutes[i].distance])
    ends = [0, *accumulate(permutes[i].length for i in concatenation)]
    if permutes and [slots[permutes[i].distance] for i in concatenation] + [max(b - a for a, b in windows)] != ends:
        return None
    if boundary == "zero":  # a device that receives nothing in a step receives zeros
        for permute, (target, (start, stop)) in product(permutes, enumerate(windows)):
            arrives = not permute.distance or received[permute.distance, target]
            due = min(permute.length, stop - start - slots[permute.distance])
            if arrives and due > received[permute.distance, target]:
                return None
    return tuple(concatenation)

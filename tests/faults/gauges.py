"""What a process holds, looked at from outside, and whether it grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Gauges:
    """What a process holds at one moment.

    Attributes:
        at_s: when, on the clock of the one who looks.
        memory_bytes: memory of its own, and shared memory that it has touched.
        descriptors: files that it has open.
        threads: threads that it has.
    """

    at_s: float
    memory_bytes: int
    descriptors: int
    threads: int

    @staticmethod
    def of(pid: int, at_s: float) -> Gauges:
        """Those of a process.

        Raises:
            OSError: it is gone.
        """
        folder = Path(f"/proc/{pid}")
        told = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        return Gauges(
            at_s=at_s,
            memory_bytes=sum(int(told[name].split()[0]) for name in ("RssAnon", "RssShmem")) * KIB,
            descriptors=len([*(folder / "fd").iterdir()]),
            threads=int(told["Threads"]),
        )


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The Theil-Sen slope: the median of the slopes of all pairs, so that a few odd values change nothing."""
    t, v = np.asarray(times, float), np.asarray(values, float)
    first, second = np.triu_indices(len(t), 1)
    apart = t[second] > t[first]
    if not apart.any():
        return 0.0
    return float(np.median((v[second] - v[first])[apart] / (t[second] - t[first])[apart]))

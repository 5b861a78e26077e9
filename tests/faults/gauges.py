"""Resources of a process, measured from outside, and their growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Gauges:
    """The resources of a process at one moment.

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
        """Samples a process.

        Raises:
            OSError: it is gone.
        """
        folder = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        return Gauges(
            at_s=at_s,
            memory_bytes=sum(int(status[name].split()[0]) for name in ("RssAnon", "RssShmem")) * KIB,
            descriptors=len([*(folder / "fd").iterdir()]),
            threads=int(status["Threads"]),
        )


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The Theil-Sen slope: the median of the slopes of all pairs, so that a few odd values change nothing."""
    t, v = np.asarray(times, float), np.asarray(values, float)
    first, second = np.triu_indices(len(t), 1)
    apart = t[second] > t[first]
    if not apart.any():
        return 0.0
    return float(np.median((v[second] - v[first])[apart] / (t[second] - t[first])[apart]))


ALLOWED_GROWTH = {"memory_bytes": 48 * MIB, "descriptors": 12, "threads": 12}
"""The growth that counts as noise; a leak grows with the calls, and exceeds it.

Allocators and the pool of regions keep what was used last, connections and memory files of calls come and go, and the
threads of gRPC and of the pools grow up to their limits while the load does.
"""


def growth(samples: Sequence[Gauges]) -> tuple[list[str], str]:
    """Describes the resources of a process that grow, in a list, and the growth of all of them in an hour.

    The first third is left out: caches, pools and the allocator fill up in it.
    """
    kept = samples[len(samples) // 3 :]
    times = [sample.at_s for sample in kept]
    growing, hourly = [], []
    for name, allowed in ALLOWED_GROWTH.items():
        values = [getattr(sample, name) for sample in kept]
        a_second = slope(times, values)
        hourly.append(f"{3600 * a_second:+.4g} {name} to {values[-1]}")
        if (drift := a_second * (times[-1] - times[0])) > allowed:
            growing.append(f"{name} grew by {drift:.4g} in {times[-1] - times[0]:.0f} s, from {values[0]}")
    return growing, ", ".join(hourly)

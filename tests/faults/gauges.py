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


@dataclass(frozen=True)
class AllowedGrowth:
    """The growth of a process that counts as noise; a leak grows with the calls, and exceeds it.

    Attributes:
        memory_bytes: steps of the allocators and of the pool of regions, which keep what was used last.
        descriptors: connections that come and go, and the memory files of calls at work.
        threads: those of gRPC and of the pools, which grow up to their limits while the load does.
    """

    memory_bytes: float = 48 * MIB
    descriptors: float = 12
    threads: float = 12


def growth(samples: Sequence[Gauges], allowed: AllowedGrowth) -> list[str]:
    """Describes the resources of a process that grow; empty where none does.

    The first third is left out: caches, pools and the allocator fill up in it.
    """
    kept = samples[len(samples) // 3 :]
    times = [sample.at_s for sample in kept]
    growing = []
    for name in ("memory_bytes", "descriptors", "threads"):
        values = [getattr(sample, name) for sample in kept]
        drift = slope(times, values) * (times[-1] - times[0])
        if drift > getattr(allowed, name):
            growing.append(
                f"{name} grew by {drift:.4g} in {times[-1] - times[0]:.0f} s, from {values[0]} to {values[-1]}"
            )
    return growing


def drift_report(samples: Sequence[Gauges]) -> str:
    """Describes the growth of a process in an hour and its resources at the end."""
    kept = samples[len(samples) // 3 :]
    times = [sample.at_s for sample in kept]
    hourly = {
        name: 3600 * slope(times, [getattr(sample, name) for sample in kept])
        for name in ("memory_bytes", "descriptors", "threads")
    }
    return (
        f"{hourly['memory_bytes'] / MIB:+.0f} MiB, {hourly['descriptors']:+.0f} descriptors, "
        f"{hourly['threads']:+.0f} threads an hour; {kept[-1].memory_bytes / MIB:.0f} MiB, {kept[-1].descriptors} "
        f"descriptors, {kept[-1].threads} threads at the end"
    )

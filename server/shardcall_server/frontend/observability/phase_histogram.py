"""A histogram of the durations of call phases, by kernel.

Prometheus's own histogram takes two locks for each value; this one takes one lock for all phases of a call.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shardcall.v1 import timing_pb2

PHASES = ("receive", "queue", "compile", "place", "execute", "gather", "send", "total")
_BOUNDS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0)
_LABELS = tuple(str(bound) for bound in (*_BOUNDS_S, "+Inf"))


@dataclass
class _Kernel:
    """The buckets and sums of one kernel, by phase."""

    counts: list[list[int]] = field(default_factory=lambda: [[0] * len(_LABELS) for _ in PHASES])
    sums: list[float] = field(default_factory=lambda: [0.0] * len(PHASES))


class PhaseHistogram(Collector):
    """A histogram of the phases of calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the histogram
        self._by_kernel: dict[str, _Kernel] = {}

    def observe(self, kernel: str, timing: timing_pb2.Timing) -> None:
        """Counts a call.

        Args:
            kernel: the name of a kernel of the mesh, or one name for all others.
            timing: the seconds of each phase; 0 for phases that the call did not reach.
        """
        seconds = (
            timing.receive_seconds,
            timing.queue_seconds,
            timing.compile_seconds,
            timing.place_seconds,
            timing.execute_seconds,
            timing.gather_seconds,
            timing.send_seconds,
            timing.total_seconds,
        )
        with self._lock:
            entry = self._by_kernel.get(kernel)
            if entry is None:
                entry = self._by_kernel[kernel] = _Kernel()
            counts, sums = entry.counts, entry.sums
            for i, took_s in enumerate(seconds):
                if took_s > 0:
                    counts[i][bisect_left(_BOUNDS_S, took_s)] += 1
                    sums[i] += took_s

    def collect(self) -> Iterator[Metric]:
        """Yields the histogram."""
        family = HistogramMetricFamily(
            "shardcall_phase_seconds",
            "Duration of each phase that a call reached; total is the time from start to end.",
            labels=["phase", "kernel"],
        )
        with self._lock:
            rows = [(name, i, list(of.counts[i]), of.sums[i]) for name, of in self._by_kernel.items() for i in _ALL]
        for kernel, i, counts, total_s in rows:
            if any(counts):
                buckets = list(zip(_LABELS, map(float, accumulate(counts)), strict=True))
                family.add_metric([PHASES[i], kernel], buckets, total_s)
        yield family


_ALL = range(len(PHASES))

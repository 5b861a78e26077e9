"""Counters that every call changes.

Prometheus's own counters take a lock and four function calls each; these take one lock for all counters of a call. With
the other changes of this sort (docs/figures.md), the front end makes 124 calls of its own Python functions for a small
call instead of 256.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

_PATHS = ("received", "sent", "shared")
_OUTCOMES = ("hit", "miss")


class CallCounters(Collector):
    """The number of calls, of the bytes of their arrays and of their program lookups."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the counters
        self._calls: dict[tuple[str, str], int] = {}
        self._received = self._sent = self._shared = 0
        self._hits = self._misses = 0

    def add(
        self, method: str, code: str, received: int = 0, sent: int = 0, shared: int = 0, cache_hit: bool | None = None
    ) -> None:
        """Counts a call.

        Args:
            method: a method of the services.
            code: the name of its status.
            received: the bytes of its arrays that came in messages.
            sent: those that were sent in messages.
            shared: those in shared memory.
            cache_hit: whether its program was in the cache; None if it looked up none.
        """
        with self._lock:
            self._calls[method, code] = self._calls.get((method, code), 0) + 1
            self._received += received
            self._sent += sent
            self._shared += shared
            if cache_hit is not None:
                self._hits += cache_hit
                self._misses += not cache_hit

    def collect(self) -> Iterator[Metric]:
        """Yields the counters."""
        with self._lock:
            calls = dict(self._calls)
            moved = self._received, self._sent, self._shared
            lookups = self._hits, self._misses
        family = CounterMetricFamily("shardcall_calls", "Calls that have ended.", labels=["method", "code"])
        for labels, count in calls.items():
            family.add_metric(labels, count)
        yield family
        yield _family(
            "shardcall_array_bytes",
            "Bytes of arrays of calls that were served, in messages or through shared memory.",
            "path",
            dict(zip(_PATHS, moved, strict=True)),
        )
        yield _family(
            "shardcall_program_lookups",
            "Calls by the outcome of their lookup in the program cache.",
            "outcome",
            dict(zip(_OUTCOMES, lookups, strict=True)),
        )


def _family(name: str, documentation: str, label: str, counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family

"""Prometheus metrics of the server's current state, read when they are scraped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shardcall.v1 import server_info_service_pb2
from shardcall_core.versions import build_version
from shardcall_server.frontend.programs.counts import ProgramCounts

Usage = server_info_service_pb2.GetUsageResponse
PrincipalUsage = server_info_service_pb2.PrincipalUsage
_OTHER = "other"

_GAUGES: Mapping[str, tuple[str, Callable[[Usage], float]]] = {
    "calls_at_work": ("Calls that arrive, wait for the mesh or run.", lambda usage: usage.calls),
    "queued_calls": ("Calls that wait for the mesh.", lambda usage: usage.queued_calls),
    "regions": ("Memory regions in use by calls.", lambda usage: usage.regions),
    "host_memory_bytes": ("Bytes of host memory of calls and segments.", lambda usage: usage.bytes_in_use),
    "host_memory_high_water_bytes": ("The largest value of host_memory_bytes.", lambda usage: usage.bytes_high_water),
    "host_memory_idle_bytes": ("Bytes of idle regions.", lambda usage: usage.bytes_idle),
    "segments": ("Segments shared with clients.", lambda usage: usage.segments),
    "leases": ("Leases of resident arrays.", lambda usage: usage.leases),
    "resident_arrays": ("Resident arrays on the mesh.", lambda usage: usage.arrays),
    "resident_bytes": ("Bytes of resident arrays on the devices.", lambda usage: usage.array_bytes),
    "programs": ("Compiled programs on the mesh.", lambda usage: usage.programs),
    "program_device_bytes": ("Bytes on the devices of running programs.", lambda usage: usage.program_device_bytes),
    "epoch_start_seconds": (
        "Time at which the current mesh became ready, in seconds since 1970; 0 while there is none.",
        lambda usage: time.time() - usage.mesh.ready_seconds if usage.mesh.ready else 0,
    ),
    "ready": ("1 if the mesh is ready, else 0.", lambda usage: usage.mesh.ready),
    "spare_ready": ("1 if a spare worker is ready, else 0.", lambda usage: usage.mesh.spare_ready),
}


@dataclass
class Sources:
    """The sources of the metrics.

    Attributes:
        usage: returns the usage of memory, devices and programs.
        programs: counts of compiled and evicted programs.
        restarts: returns the number of restarts of the mesh by cause.
        strategies_timed: returns the number of strategies selected by timing.
        limits: returns limits by the name of their setting.
        dropped_log_lines: returns the number of log lines that could not be written.
    """

    usage: Callable[[], Usage]
    programs: ProgramCounts
    restarts: Callable[[], Mapping[str, int]]
    strategies_timed: Callable[[], int]
    limits: Callable[[], Mapping[str, float]]
    dropped_log_lines: Callable[[], int]


class StateCollector(Collector):
    """Reads its sources whenever it is scraped."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yields every family."""
        sources, usage = self._sources, self._sources.usage()
        for name, (about, read) in _GAUGES.items():
            yield GaugeMetricFamily(f"shardcall_{name}", about, value=read(usage))
        limits = GaugeMetricFamily("shardcall_limit", "Limits set by the server's settings.", labels=["setting"])
        for name, limit in sources.limits().items():
            limits.add_metric([name], limit)
        yield limits
        yield from _programs(sources.programs)
        yield from _known_answers(usage.known_answers)
        yield from _principals(usage)
        disk = CounterMetricFamily(
            "shardcall_disk_programs", "Lookups and writes of programs on disk, by outcome.", labels=["outcome"]
        )
        for outcome, count in asdict(sources.programs.disk.counts).items():
            disk.add_metric([outcome], count)
        yield disk
        restarts = CounterMetricFamily("shardcall_mesh_restarts", "Restarts of the mesh, by kind.", labels=["kind"])
        for cause, count in sources.restarts().items():
            restarts.add_metric([cause], count)
        yield restarts
        yield CounterMetricFamily(
            "shardcall_strategies_timed",
            "Strategies selected by timing.",
            value=sources.strategies_timed(),
        )
        yield CounterMetricFamily(
            "shardcall_dropped_log_lines",
            "Log lines that could not be written to standard error.",
            value=sources.dropped_log_lines(),
        )
        build = GaugeMetricFamily(
            "shardcall_build_info", "The server's version; the value is always 1.", labels=["version"]
        )
        build.add_metric([build_version()], 1)
        yield build

    def describe(self) -> list[Metric]:
        """Returns nothing, so that registering does not collect."""
        return []


def _known_answers(state: server_info_service_pb2.KnownAnswers) -> Iterator[Metric]:
    tests = GaugeMetricFamily("shardcall_known_answers", "Known-answer tests, by verdict.", labels=["verdict"])
    failed = len({failure.known_answer for failure in state.failures})
    for verdict, count in (("passed", state.passed), ("failed", failed), ("pending", state.pending)):
        tests.add_metric([verdict], count)
    yield tests
    kernels = GaugeMetricFamily(
        "shardcall_kernel_failed_known_answers",
        "Failed known-answer tests of a kernel, which is refused.",
        labels=["kernel"],
    )
    for kernel, count in Counter(failure.kernel for failure in state.failures).items():
        kernels.add_metric([kernel], count)
    yield kernels
    calls = GaugeMetricFamily(
        "shardcall_suspect_calls",
        "Calls of a kernel that had been answered before it failed a known-answer test.",
        labels=["kernel"],
    )
    for kernel, count in _suspect_calls(state).items():
        calls.add_metric([kernel], count)
    yield calls


def _suspect_calls(state: server_info_service_pb2.KnownAnswers) -> Counter[str]:
    counts: Counter[str] = Counter()
    for failure in state.failures:
        counts[failure.kernel] += failure.calls
    return counts


_OF_PRINCIPALS: Mapping[str, tuple[str, Callable[[PrincipalUsage], int]]] = {
    "arrays": ("Resident arrays of a principal, with and without names.", lambda usage: usage.arrays),
    "array_bytes": ("Their bytes on the devices.", lambda usage: usage.array_bytes),
    "programs": ("Compiled programs on the mesh that a principal had compiled.", lambda usage: usage.programs),
    "calls_at_work": ("Calls of a principal that arrive, wait for the mesh or run.", lambda usage: usage.calls),
}


def _principals(usage: Usage) -> Iterator[Metric]:
    """Yields what principals have and do, by their names in the token file; all others are "other"."""
    labels = {item.name: item.name if item.weight else _OTHER for item in usage.by_principal}
    for name, (about, read) in _OF_PRINCIPALS.items():
        sums: Counter[str] = Counter()
        for item in usage.by_principal:
            sums[labels[item.name]] += read(item)
        family = GaugeMetricFamily(f"shardcall_principal_{name}", about, labels=["principal"])
        for label, value in sums.items():
            family.add_metric([label], value)
        yield family
    ended: Counter[str] = Counter()
    by_name = {total.name: total.calls for total in usage.principals}
    for principal, calls in (by_name | {item.name: item.ended_calls for item in usage.by_principal}).items():
        ended[labels.get(principal, _OTHER)] += calls
    counter = CounterMetricFamily(
        "shardcall_principal_calls", "Calls of a principal that have ended.", labels=["principal"]
    )
    for label, calls in ended.items():
        counter.add_metric([label], calls)
    yield counter


def _programs(counts: ProgramCounts) -> Iterator[Metric]:
    by_source = CounterMetricFamily(
        "shardcall_programs_prepared", "Programs by source: compiled or loaded from disk.", labels=["source"]
    )
    by_source.add_metric(["compiled"], counts.compiled)
    by_source.add_metric(["disk"], counts.from_disk)
    yield by_source
    yield CounterMetricFamily(
        "shardcall_compiles_after_ready",
        "Programs compiled while the mesh was ready, for which calls may have waited.",
        value=counts.compiled_serving,
    )
    yield CounterMetricFamily("shardcall_program_evictions", "Programs evicted from the mesh.", value=counts.evicted)

"""What the server is and holds at the moment that Prometheus asks, read off the objects that know it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.programs.counts import ProgramCounts

Usage = server_info_service_pb2.GetUsageResponse

_GAUGES: Mapping[str, tuple[str, Callable[[Usage], float]]] = {
    "calls_at_work": ("Calls that arrive, wait for the mesh or are worked on.", lambda usage: usage.calls),
    "queued_calls": ("Calls that wait for the mesh.", lambda usage: usage.queued_calls),
    "regions": ("Regions of calls at work.", lambda usage: usage.regions),
    "host_memory_bytes": ("Memory of calls at work and of segments.", lambda usage: usage.bytes_in_use),
    "host_memory_high_water_bytes": ("The most that it ever was.", lambda usage: usage.bytes_high_water),
    "host_memory_idle_bytes": ("Regions kept warm for the next calls.", lambda usage: usage.bytes_idle),
    "segments": ("Segments of clients.", lambda usage: usage.segments),
    "leases": ("Leases on arrays.", lambda usage: usage.leases),
    "resident_arrays": ("Arrays that stay on the mesh.", lambda usage: usage.arrays),
    "resident_bytes": ("Bytes that these take on the devices.", lambda usage: usage.array_bytes),
    "programs": ("Compiled programs that the mesh holds.", lambda usage: usage.programs),
    "program_device_bytes": ("Bytes on the devices of running programs.", lambda usage: usage.program_device_bytes),
    "epoch_start_seconds": (
        "When the present mesh became ready, in seconds since 1970; 0 while there is none.",
        lambda usage: time.time() - usage.mesh.ready_seconds if usage.mesh.ready else 0,
    ),
    "ready": ("Whether the mesh answers: 1 or 0.", lambda usage: usage.mesh.ready),
    "spare_ready": ("Whether another worker stands by: 1 or 0.", lambda usage: usage.mesh.spare_ready),
}


@dataclass
class Sources:
    """Who knows what.

    Attributes:
        usage: what the server holds.
        programs: what happened to programs.
        restarts: how often the mesh ended, by kind.
        strategies_timed: how many choices of a strategy timing has made.
        limits: what the server may hold at most, by setting.
    """

    usage: Callable[[], Usage]
    programs: ProgramCounts
    restarts: Callable[[], Mapping[str, int]]
    strategies_timed: Callable[[], int]
    limits: Callable[[], Mapping[str, float]]


class StateCollector(Collector):
    """Reads its sources whenever it is asked; between two questions it costs nothing."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yields every family."""
        sources, usage = self._sources, self._sources.usage()
        for name, (about, read) in _GAUGES.items():
            yield GaugeMetricFamily(f"shardcall_{name}", about, value=read(usage))
        limits = GaugeMetricFamily("shardcall_limit", "The settings that bound what is above.", labels=["setting"])
        for name, limit in sources.limits().items():
            limits.add_metric([name], limit)
        yield limits
        yield from _programs(sources.programs)
        yield from _known_answers(usage.known_answers)
        disk = CounterMetricFamily(
            "shardcall_disk_programs", "Programs on disk, by what became of them.", labels=["outcome"]
        )
        for outcome, count in asdict(sources.programs.disk.counts).items():
            disk.add_metric([outcome], count)
        yield disk
        restarts = CounterMetricFamily("shardcall_mesh_restarts", "Ends of the mesh, by kind.", labels=["kind"])
        for kind, count in sources.restarts().items():
            restarts.add_metric([kind], count)
        yield restarts
        yield CounterMetricFamily(
            "shardcall_strategies_timed",
            "Choices of a strategy that timing has made.",
            value=sources.strategies_timed(),
        )
        build = GaugeMetricFamily("shardcall_build_info", "What runs; always 1.", labels=["version"])
        build.add_metric([version("shardcall")], 1)
        yield build

    def describe(self) -> list[Metric]:
        """Names nothing: otherwise it would be asked for everything when it is registered."""
        return []


def _known_answers(told: server_info_service_pb2.KnownAnswers) -> Iterator[Metric]:
    tests = GaugeMetricFamily("shardcall_known_answers", "Known-answer tests, by verdict.", labels=["verdict"])
    failed = len({failure.known_answer for failure in told.failures})
    for verdict, count in (("passed", told.passed), ("failed", failed), ("pending", told.pending)):
        tests.add_metric([verdict], count)
    yield tests
    kernels = GaugeMetricFamily(
        "shardcall_kernel_failed_known_answers",
        "Known-answer tests that a kernel failed, which is therefore refused.",
        labels=["kernel"],
    )
    for kernel, count in Counter(failure.kernel for failure in told.failures).items():
        kernels.add_metric([kernel], count)
    yield kernels


def _programs(counts: ProgramCounts) -> Iterator[Metric]:
    made = CounterMetricFamily("shardcall_programs_made", "Programs by where they came from.", labels=["source"])
    made.add_metric(["compiled"], counts.compiled)
    made.add_metric(["disk"], counts.from_disk)
    yield made
    yield CounterMetricFamily(
        "shardcall_compiles_after_ready",
        "Programs compiled while the mesh was ready: calls may have waited for them.",
        value=counts.compiled_serving,
    )
    yield CounterMetricFamily(
        "shardcall_program_evictions", "Programs that the mesh was told to forget.", value=counts.evicted
    )

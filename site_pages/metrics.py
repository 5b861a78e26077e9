"""The page of the metrics, from the registry that a server exposes."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.observability.metrics import Metrics
from shardcall_server.frontend.observability.metrics_state import Sources, StateCollector
from shardcall_server.frontend.programs.counts import ProgramCounts
from site_pages.markup import table


def page() -> str:
    """Returns the text of the page."""
    introduction = (
        "The metrics of a server that has `--metrics-port`, in Prometheus' format. "
        "[Telemetry](../telemetry.md#metrics) describes their labels and what to alert on."
    )
    rows = [(f"`{_name(family)}`", family.type, family.documentation) for family in _families()]
    return "\n\n".join(["# Metrics", introduction, table(("metric", "type", ""), sorted(rows))]) + "\n"


def _families() -> Iterator[Metric]:
    """Yields the families of a server that has served nothing."""
    usage = server_info_service_pb2.GetUsageResponse()
    sources = Sources(lambda: usage, ProgramCounts(), dict, lambda: 0, dict, lambda: 0)
    metrics = Metrics()
    metrics.registry.register(StateCollector(sources))
    return iter(metrics.registry.collect())


def _name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name

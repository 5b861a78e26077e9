"""Everything by which the server's keeper sees what it does: metrics, log and spans, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog
from prometheus_client import disable_created_metrics

from shardcall_server.frontend.autotune.autotuner import Autotuner
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.observability.metrics import Metrics
from shardcall_server.frontend.observability.metrics_server import MetricsServer
from shardcall_server.frontend.observability.metrics_state import Sources, StateCollector, Usage
from shardcall_server.frontend.observability.spans import make_spans
from shardcall_server.frontend.programs.counts import ProgramCounts
from shardcall_server.settings import Settings

_LIMITS = {"max_bytes_in_flight", "max_cached_programs", "max_concurrent_calls"}


class Telemetry:
    """Makes and ends all of it.

    Args:
        settings: the server's.

    Attributes:
        call_recorder: told of every call's end.
        programs: what happened to programs, counted by who knows.

    Raises:
        SettingsError: as of `make_spans`.
    """

    def __init__(self, settings: Settings) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second sample of each, of when it began
        self._settings = settings
        self._metrics = Metrics()
        self._spans = make_spans(settings)
        self._server: MetricsServer | None = None
        self.call_recorder = CallRecorder(self._metrics, self._spans)
        self.programs = ProgramCounts()

    def expose(
        self,
        usage: Callable[[], Usage],
        restarts: Callable[[], Mapping[str, int]],
        autotuner: Autotuner | None,
        max_resident_bytes: Callable[[], int],
    ) -> None:
        """Shows the metrics, if anybody is to see them.

        Args:
            usage: what the server holds.
            restarts: how often the mesh ended, by kind.
            autotuner: times strategies; None where that is not done.
            max_resident_bytes: the most that arrays that stay may take.

        Raises:
            SettingsError: their address cannot be had.
        """
        settings = self._settings
        sources = Sources(
            usage=usage,
            programs=self.programs,
            restarts=restarts,
            strategies_timed=lambda: autotuner.timed if autotuner else 0,
            limits=lambda: settings.model_dump(include=_LIMITS) | {"max_resident_bytes": max_resident_bytes()},
        )
        self._metrics.registry.register(StateCollector(sources))
        if settings.metrics_port is not None:
            self._server = MetricsServer(settings.metrics_host, settings.metrics_port, self._metrics.registry)
            structlog.get_logger().info("metrics", url=f"http://{self._server.address}/metrics")

    def close(self) -> None:
        """Ends it all, after the last call."""
        if self._server is not None:
            self._server.close()
        if self._spans is not None:
            self._spans.close()

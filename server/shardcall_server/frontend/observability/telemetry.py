"""Construction of the server's telemetry: metrics, logs and spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, disable_created_metrics

from shardcall_server.frontend.autotune.autotuner import Autotuner
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.observability.metrics import Metrics
from shardcall_server.frontend.observability.metrics_state import Sources, StateCollector, Usage
from shardcall_server.frontend.observability.recent_calls import RecentCalls
from shardcall_server.frontend.observability.spans import make_spans
from shardcall_server.frontend.programs.counts import ProgramCounts
from shardcall_server.log_output import dropped_lines
from shardcall_server.settings import Settings

_LIMITS = {"max_bytes_in_flight", "max_cached_programs", "max_concurrent_calls"}


class Telemetry:
    """Metrics, logs and spans of a server.

    Attributes:
        call_recorder: notified of the end of every call.
        programs: counts of programs, which the program cache updates.

    Raises:
        SettingsError: as of `make_spans`.
    """

    def __init__(self, settings: Settings) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second sample of each metric, of its creation
        self._settings = settings
        self._metrics = Metrics()
        self._spans = make_spans(settings)
        recent = RecentCalls() if settings.live_page else None
        self.call_recorder = CallRecorder(self._metrics, self._spans, recent)
        self.programs = ProgramCounts()

    def expose(
        self,
        usage: Callable[[], Usage],
        restarts: Callable[[], Mapping[str, int]],
        autotuner: Autotuner | None,
        max_resident_bytes: Callable[[], int],
    ) -> None:
        """Makes the metrics complete by those of the server's state.

        Args:
            usage: returns the usage of memory, devices and programs.
            restarts: returns the number of restarts of the mesh by cause.
            autotuner: the autotuner; None if strategies are not timed.
            max_resident_bytes: returns the limit of resident arrays.
        """
        settings = self._settings
        sources = Sources(
            usage=usage,
            programs=self.programs,
            restarts=restarts,
            strategies_timed=lambda: autotuner.timed if autotuner else 0,
            limits=lambda: settings.model_dump(include=_LIMITS) | {"max_resident_bytes": max_resident_bytes()},
            dropped_log_lines=dropped_lines,
        )
        self._metrics.registry.register(StateCollector(sources))

    @property
    def registry(self) -> CollectorRegistry:
        """The metrics."""
        return self._metrics.registry

    def close(self) -> None:
        """Flushes spans."""
        if self._spans is not None:
            self._spans.close()

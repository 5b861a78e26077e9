"""OpenTelemetry spans of calls, which continue their callers' traces; they need the extra ``otel``."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import grpc
import structlog

from shardcall_core.call_error import Reason
from shardcall_core.versions import build_version
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.settings import Settings, SettingsError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

_EXPORT_S = 2.0  # the longest wait for a collector at shutdown
_TRACES_PATH = "/v1/traces"
_STANDARD = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SERVICE = "shardcall.v1"
_NS = 1_000_000_000


class Spans:
    """Makes a span of each call, with a child span of each phase, unless the caller's trace is not sampled.

    Spans are made from a call's timing when it has finished, so tracing costs nothing while it runs.
    """

    def __init__(self, processor: SpanProcessor) -> None:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # with the extra `otel` only
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        resource = {"service.version": build_version()}
        if "OTEL_SERVICE_NAME" not in os.environ:
            resource["service.name"] = "shardcall"
        self._provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("shardcall_server", build_version())
        self._propagator = TraceContextTextMapPropagator()

    def record(self, method: str, call: ServerCall, code: grpc.StatusCode, reason: Reason | None) -> None:
        """Records a call that has just finished; a failure is logged and does not affect the call."""
        log = structlog.get_logger()
        try:
            self._record(method, call, code, reason)
        except Exception:
            log.exception("a span could not be made")

    def close(self) -> None:
        """Sends the remaining spans, for a limited time."""
        self._provider.force_flush(round(_EXPORT_S * 1000))
        self._provider.shutdown()

    def _record(self, method: str, call: ServerCall, code: grpc.StatusCode, reason: Reason | None) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context  # noqa: PLC0415

        ended, now_ns = time.monotonic(), time.time_ns()

        def clock_ns(moment: float) -> int:
            return now_ns - round((ended - moment) * _NS)

        # The seconds of the call were measured some time ago: a phase may begin before a call of that length would.
        begins = [ended - call.timing.total_seconds, *(end - seconds for _, seconds, end in call.phases if seconds > 0)]
        span = self._tracer.start_span(
            f"{_SERVICE}/{method}",
            context=self._propagator.extract(call.trace),
            kind=SpanKind.SERVER,
            attributes=_attributes(method, call, code),
            start_time=clock_ns(min(begins)),
        )
        if not span.is_recording():  # the caller's trace is not sampled
            return
        if reason is not None:
            span.set_attribute("shardcall.reason", reason.value)
            span.set_status(Status(StatusCode.ERROR, reason.value))
        parent = set_span_in_context(span)
        for name, seconds, end in call.phases:
            if seconds > 0:
                phase = self._tracer.start_span(name, context=parent, start_time=clock_ns(end - seconds))
                phase.end(clock_ns(end))
        span.end(clock_ns(ended))


def make_spans(settings: Settings) -> Spans | None:
    """Returns the tracer for the collector in the settings or the standard variables; None if there is none.

    Raises:
        SettingsError: the settings name a collector, and the packages are missing.
    """
    if not settings.otel_endpoint and not any(os.environ.get(name) for name in _STANDARD):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        missing = f"spans need {error.name or error}: pip install 'shardcall[server,otel]'"
        if settings.otel_endpoint:
            raise SettingsError(f"setting otel_endpoint is {settings.otel_endpoint!r}, and {missing}") from None
        structlog.get_logger().warning("no spans are sent", reason=missing)
        return None
    endpoint = _traces_url(settings.otel_endpoint)
    return Spans(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_S)))


def _traces_url(endpoint: str) -> str | None:
    """Returns the URL for a collector's traces; None leaves it to the standard variables."""
    if not endpoint or endpoint.endswith(_TRACES_PATH):
        return endpoint or None
    return endpoint.rstrip("/") + _TRACES_PATH


def _attributes(method: str, call: ServerCall, code: grpc.StatusCode) -> dict[str, str | int | bool]:
    attributes: dict[str, str | int | bool] = {
        "rpc.system": "grpc",
        "rpc.method": method,
        "rpc.grpc.status_code": int(code.value[0]),
        "shardcall.request_id": call.request_id,
        "shardcall.received_bytes": call.received_bytes,
        "shardcall.sent_bytes": call.sent_bytes,
        "shardcall.shared_bytes": call.shared_bytes,
    }
    if call.kernel:
        attributes["shardcall.kernel"] = call.kernel
    if call.key:
        attributes |= {"shardcall.strategy": call.strategy, "shardcall.key": call.key[:12]}
        attributes["shardcall.cache_hit"] = bool(call.cache_hit)
    return attributes

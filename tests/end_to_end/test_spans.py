"""Spans of calls, sent to a collector that listens here, as OpenTelemetry's own would."""

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from end_to_end.messages import execute, open_channel, operand
from end_to_end.processes import wait_for
from end_to_end.raw_stream import item, opened, prepare
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import kernel_service_pb2_grpc

trace = pytest.importorskip("opentelemetry.trace")
collector_pb2 = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

X = np.arange(24.0).reshape(6, 4)
PHASES = {"receive", "queue", "compile", "place", "execute", "gather", "send"}


class Collector:
    """Takes what is sent by OTLP over HTTP.

    Attributes:
        url: where it listens.
        services: the names of the services that sent something.
        spans: what they sent.
    """

    def __init__(self) -> None:
        self.services, self.spans = set(), []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        for resource in collector_pb2.ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def of_trace(self, trace_id: int) -> list:
        return [span for span in self.spans if int.from_bytes(span.trace_id, "big") == trace_id]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector_under_test = Collector()
    yield collector_under_test
    collector_under_test.close()


@pytest.fixture(scope="module")
def tracing(collector) -> Iterator[ServerProcess]:
    """A server that sends spans to the collector."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        with running_server(
            "--otel-endpoint", collector.url, devices=2, why="it sends spans to a collector"
        ) as running:
            yield running


@pytest.fixture(scope="module", params=["CallStream", "Execute"])
def method(request) -> str:
    """The method of small calls."""
    return str(request.param)


@pytest.fixture(scope="module")
def traced(tracing, method) -> Iterator[sc.Client]:
    with sc.connect(tracing.address, shared_memory=False, call_stream=method == "CallStream") as client:
        yield client


def in_a_span(call, *, sampled: bool = True) -> tuple[int, int]:
    """Makes a call in a span of this process; returns the ids of its trace and of itself."""
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else trace.TraceFlags.DEFAULT)
    context = trace.SpanContext(
        int.from_bytes(os.urandom(16), "big") or 1,
        int.from_bytes(os.urandom(8), "big") or 1,
        is_remote=False,
        trace_flags=flags,
        trace_state=trace.TraceState([("vendor", "1")]),
    )
    with trace.use_span(trace.NonRecordingSpan(context)):
        call()
    return context.trace_id, context.span_id


def columns_of(method: str) -> np.ndarray:
    """Returns an array whose programs no calls by the other method have compiled."""
    return X if method == "CallStream" else X[:, :2]


def attributes(span) -> dict[str, object]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


def root_of(spans: list, parent: int):
    (root,) = [span for span in spans if int.from_bytes(span.parent_span_id, "big") == parent]
    return root


def test_a_call_is_a_span_that_continues_its_callers_trace(collector, traced, method):
    x = columns_of(method)
    trace_id, parent = in_a_span(lambda: traced.diff(x, n=3, axis=0))
    wait_for(lambda: len(collector.of_trace(trace_id)) > 1)
    call = root_of(collector.of_trace(trace_id), parent)
    assert call.name == f"shardcall.v1/{method}"
    assert call.trace_state == "vendor=1"
    recorded = attributes(call)
    assert recorded["shardcall.kernel"] == "diff"
    assert recorded["shardcall.strategy"]
    assert recorded["shardcall.cache_hit"] is False
    assert (recorded["shardcall.received_bytes"], recorded["shardcall.sent_bytes"]) == (x.nbytes, x[3:].nbytes)
    assert recorded["rpc.grpc.status_code"] == 0
    assert "shardcall" in collector.services


def test_every_item_of_a_frame_has_a_separate_trace(collector, traced):
    """A state without a parent belongs to no trace."""
    x = np.arange(8.0)
    traces = [int.from_bytes(os.urandom(16), "big") or 1 for _ in range(3)]
    with opened(traced) as stream:
        items = [
            item(
                number, x, traceparent=f"00-{trace_id:032x}-00000000000000{number + 1:02x}-01", tracestate=f"v={number}"
            )
            for number, trace_id in enumerate(traces)
        ]
        stream.send(prepare(), *items, item(3, x, tracestate="v=3"))
        for number in range(4):
            np.testing.assert_array_equal(stream.result(number), np.diff(x))
    for number, trace_id in enumerate(traces):
        wait_for(lambda trace_id=trace_id: len(collector.of_trace(trace_id)) > 1)
        call = root_of(collector.of_trace(trace_id), number + 1)
        assert (call.name, call.trace_state) == ("shardcall.v1/CallStream", f"v={number}")
    assert not any(span.trace_state == "v=3" for span in collector.spans)


def test_its_phases_are_spans_below_it_and_within_its_time(collector, traced, method):
    trace_id, parent = in_a_span(lambda: traced.diff(columns_of(method), n=2, axis=0))
    wait_for(lambda: len(collector.of_trace(trace_id)) > 1)
    spans = collector.of_trace(trace_id)
    call = root_of(spans, parent)
    phases = [span for span in spans if span is not call]
    assert {span.name for span in phases} <= PHASES
    assert {"compile", "execute"} <= {span.name for span in phases}
    for span in phases:
        assert span.parent_span_id == call.span_id
        assert call.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= call.end_time_unix_nano
    by_name = {span.name: span for span in phases}
    assert by_name["compile"].end_time_unix_nano <= by_name["execute"].start_time_unix_nano


def test_a_refused_call_is_a_span_with_its_reason(collector, traced):
    errors = []

    def refused() -> None:
        with pytest.raises(sc.AxisError) as caught:
            traced.diff(X, axis=7)
        errors.append(caught.value)

    trace_id, parent = in_a_span(refused)
    wait_for(lambda: bool(collector.of_trace(trace_id)))
    call = root_of(collector.of_trace(trace_id), parent)
    assert attributes(call)["shardcall.reason"] == "AXIS_OUT_OF_RANGE"
    assert attributes(call)["shardcall.request_id"] == errors[0].request_id
    assert call.status.code == call.status.STATUS_CODE_ERROR


def test_a_stream_has_a_phase_of_sending(collector, traced):
    large = np.zeros((512, 1024))
    trace_id, parent = in_a_span(lambda: traced.copy(large))
    wait_for(lambda: len(collector.of_trace(trace_id)) > 1)
    spans = collector.of_trace(trace_id)
    assert root_of(spans, parent).name == "shardcall.v1/ExecuteStream"
    assert {"receive", "send"} <= {span.name for span in spans}


def test_a_trace_that_its_caller_does_not_keep_is_not_sent(collector, traced):
    unsampled, _ = in_a_span(lambda: traced.diff(X, axis=0), sampled=False)
    sampled, _ = in_a_span(lambda: traced.diff(X, axis=0))
    wait_for(lambda: bool(collector.of_trace(sampled)))
    assert not collector.of_trace(unsampled)


def test_a_call_without_a_trace_begins_one(collector, traced):
    x = X[:3]  # no other test sends so few bytes

    def roots() -> list[object]:
        parentless = [span for span in collector.spans if not span.parent_span_id]
        return [span for span in parentless if attributes(span).get("shardcall.received_bytes") == x.nbytes]

    traced.diff(x, axis=0)
    wait_for(lambda: bool(roots()))
    assert {span.name for span in roots()} <= {"shardcall.v1/Execute", "shardcall.v1/CallStream"}


@pytest.mark.parametrize("parent", ["", "00", "00-" + "z" * 32 + "-" + "0" * 16 + "-01", "00-" + "0" * 500])
def test_an_invalid_parent_is_ignored(collector, traced, parent):
    with open_channel(traced.address) as channel:
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        answer = stub.Execute(execute(operand(np.arange(6.0))), timeout=60, metadata=[("traceparent", parent)])
    assert np.frombuffer(answer.results[0].inline.data).tolist() == [1.0] * 5


def test_a_client_whose_program_makes_no_spans_sends_none_and_imports_nothing():
    code = (
        "import sys\n"
        "from shardcall_core.wire.metadata import rpc_metadata\n"
        "sent = dict(rpc_metadata(1.0, 'id'))\n"
        "assert 'traceparent' not in sent, sent\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
